from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from patchkit.target import Layout, find_targets
from tests.installing import add_dist_info, add_package, install, refusal, resolve

P = PurePosixPath


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    return tmp_path.resolve()


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return a hand-made virtual environment, its site-packages empty."""
    prefix = tmp_path / "env"
    (prefix / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python3.11").touch()
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return prefix


@pytest.fixture
def site(environment: Path) -> Path:
    return environment / "lib" / "python3.11" / "site-packages"


# Source trees


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("PKG-INFO", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.6.3\n", "0.6.3"),
        ("vllm.egg-info/PKG-INFO", "Name: vllm\nVersion: 0.6.3+cpu\n", "0.6.3+cpu"),
        ("vllm/_version.py", "TYPE_CHECKING = False\n__version__ = version = '0.6.3.post1'\n", "0.6.3.post1"),
        ("vllm/version.py", '__version__: str = "0.6.3"  # set by the release\r\n', "0.6.3"),
        ("version.txt", "0.6.3\n", "0.6.3"),
    ],
)
def test_version_of_a_source_tree_is_what_it_states(tmp_path: Path, file: str, text: str, version: str) -> None:
    add_package(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    tree = resolve("vllm", tmp_path)
    assert (tree.version, tree.layout, tree.distribution) == (version, Layout.SOURCE, "")
    assert tree.evidence == ("a source tree", f"{file} says {version}")
    assert not tree.installed


@pytest.mark.parametrize(
    "text",
    [
        'try:\n    from ._version import __version__\nexcept ImportError:\n    __version__ = "dev"\n',
        '__version__ = "dev"\n',
        '__version__ = "0.0.0.dev1+gabc"\n',
        "__version__ = open('/etc/hostname').read()\n",
        "__version__ = '0.6.3' if False else 'x'.join(('1', '2'))\x00\n",
    ],
    ids=["guarded", "dev", "no release", "call", "expression"],
)
def test_version_file_is_never_run_and_a_placeholder_is_no_version(tmp_path: Path, text: str) -> None:
    (add_package(tmp_path) / "version.py").write_text(text)
    (tmp_path / "PKG-INFO").write_text("Name: other\nVersion: 1.0\n")
    assert find_targets(tmp_path)[0].version == ""


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    add_package(root, "python/sglang")
    (root / "python" / "pyproject.toml").touch()
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return root


def pack_refs(root: Path) -> None:
    git(root, "pack-refs", "--all")


def detach(root: Path) -> None:
    git(root, "checkout", "-q", "--detach")


def leave(_: Path) -> None:
    pass


@pytest.mark.parametrize("annotate", [("-a", "-m", "release"), ()], ids=["annotated", "light"])
@pytest.mark.parametrize("arrange", [leave, pack_refs, detach])
def test_tag_at_head_gives_the_version_without_git(
    repository: Path, annotate: tuple[str, ...], arrange: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("v0.5.1", "v0.5.1rc2", "gateway-v9.9", "nightly"):
        git(repository, "tag", *annotate, name)
    arrange(repository)
    monkeypatch.setenv("PATH", "")
    tree = resolve("sglang", repository)
    assert tree.version == "0.5.1"
    assert (tree.package, tree.layout) == (P("python/sglang"), Layout.SOURCE)
    assert "git tag at HEAD" in tree.evidence[-1]


def test_tag_of_thousands_of_digits_stands_behind_one_that_is_a_version(repository: Path) -> None:
    git(repository, "tag", "v0.5.1")
    pack_refs(repository)
    head = git(repository, "rev-parse", "HEAD")
    with (repository / ".git" / "packed-refs").open("a") as packed:
        packed.write(f"{head} refs/tags/v{'9' * 5000}.1\n")
    assert resolve("sglang", repository).version == "0.5.1"


def test_tag_elsewhere_is_not_the_version(repository: Path) -> None:
    git(repository, "tag", "v0.5.1")
    git(repository, "commit", "-q", "--allow-empty", "-m", "two")
    assert find_targets(repository)[0].version == ""


def test_linked_work_tree_reads_the_tags_of_its_repository(repository: Path, tmp_path: Path) -> None:
    git(repository, "tag", "v0.5.1")
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert resolve("sglang", tmp_path / "linked").version == "0.5.1"


def test_repository_around_the_tree_is_not_asked(repository: Path) -> None:
    git(repository, "tag", "v0.5.1")
    add_package(repository / "third_party" / "engine", "vllm")
    assert find_targets(repository / "third_party" / "engine")[0].version == ""


def test_tag_that_disagrees_with_the_version_file_is_said(repository: Path) -> None:
    git(repository, "tag", "v0.5.2")
    (repository / "python" / "sglang" / "version.py").write_text('__version__ = "0.5.1"\n')
    tree = resolve("sglang", repository)
    assert tree.version == "0.5.1"
    assert "0.5.2: not taken" in tree.evidence[-1]


def test_sglangs_python_directory_is_a_root_too(repository: Path) -> None:
    git(repository, "tag", "v0.5.1")
    tree = resolve("sglang", repository / "python")
    assert (tree.root, tree.package, tree.version) == (repository / "python", P("sglang"), "0.5.1")


def test_package_directory_in_a_checkout_goes_up_to_the_checkout(repository: Path) -> None:
    git(repository, "tag", "v0.5.1")
    tree = resolve("sglang", repository / "python" / "sglang")
    assert (tree.root, tree.package) == (repository, P("python/sglang"))


def test_kernel_in_sglangs_repository_does_not_take_sglangs_tag(repository: Path) -> None:
    git(repository, "tag", "v0.5.1")
    kernel = add_package(repository, "sgl-kernel/python/sgl_kernel")
    (kernel / "version.py").write_text('__version__ = "0.3.5"\n')
    tree = resolve("sgl-kernel", repository)
    assert (tree.version, tree.package) == ("0.3.5", P("sgl-kernel/python/sgl_kernel"))


@pytest.mark.parametrize("damage", ["HEAD", "packed-refs"])
def test_damaged_repository_is_no_version(repository: Path, damage: str) -> None:
    (repository / ".git" / damage).write_bytes(b"ref: ../../../../etc/passwd\n\xff\0^ ^\n")
    assert find_targets(repository)[0].version == ""


# Editable installs, as pip, setuptools, hatchling and uv write them


def direct_url(site: Path, checkout: Path) -> None:
    url = {"dir_info": {"editable": True}, "url": checkout.as_uri()}
    next(site.glob("*.dist-info")).joinpath("direct_url.json").write_text(json.dumps(url))


def path_file(site: Path, checkout: Path) -> None:
    (site / "__editable__.sglang-0.5.1.pth").write_text(f"{checkout}\n")


def finder(site: Path, checkout: Path) -> None:
    name = "__editable___sglang_0_5_1_finder"
    (site / "__editable__.sglang-0.5.1.pth").write_text(f"import {name}; {name}.install()")
    mapping = {"other": "/x", "sglang": str(checkout / "sglang")}
    (site / f"{name}.py").write_text(f"import sys\nMAPPING: dict[str, str] = {mapping!r}\nNAMESPACES = {{}}\n")


@pytest.mark.parametrize("write", [direct_url, path_file, finder])
def test_editable_install_leads_to_its_checkout(
    site: Path, repository: Path, write: Callable[[Path, Path], None]
) -> None:
    add_dist_info(site, "0.5.1", "sglang")
    write(site, repository / "python")
    tree = resolve("sglang==0.5.1", site)
    assert (tree.root, tree.package, tree.layout) == (repository, P("python/sglang"), Layout.SOURCE)
    assert (tree.distribution, tree.python_version) == ("", "3.11")
    assert "editable install" in tree.evidence[0]


def test_egg_link_leads_to_its_checkout(site: Path, tmp_path: Path) -> None:
    add_package(tmp_path / "vllm")
    (tmp_path / "vllm" / "vllm" / "_version.py").write_text("__version__ = '0.6.3'\n")
    (site / "vllm.egg-link").write_text(f"{tmp_path / 'vllm'}\n.")
    tree = resolve("vllm", site)
    assert (tree.root, tree.version) == (tmp_path / "vllm", "0.6.3")


def test_editable_install_whose_checkout_is_gone_says_so(site: Path, tmp_path: Path) -> None:
    add_dist_info(site, "0.5.1", "sglang")
    direct_url(site, tmp_path / "gone")
    assert f"nor in its checkout {tmp_path / 'gone'}" in refusal("sglang", site)


@pytest.mark.parametrize(
    "mapping",
    ["{'sglang': __import__('os').getcwd()}", "{'sglang'}", "{" * 5000 + "}", "{'sglang': 'relative'}", "{[]: 1}"],
    ids=["code", "set", "deep", "relative", "unhashable"],
)
def test_finder_is_read_as_a_literal_or_not_at_all(site: Path, mapping: str) -> None:
    add_dist_info(site, "0.5.1", "sglang")
    (site / "__editable___sglang_0_5_1_finder.py").write_text(f"MAPPING = {mapping}\n")
    refusal("sglang", site)


def test_package_in_place_wins_over_an_editable_install_as_in_python(site: Path, repository: Path) -> None:
    install(site, "0.5.1", "sglang", "sglang")
    direct_url(site, repository / "python")
    assert resolve("sglang", site).root == site
