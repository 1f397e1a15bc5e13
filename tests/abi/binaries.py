"""Shared objects made with a compiler, and wheels made of them: real parts with one fault each."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

OLD_STRING = "_ZN5torch3jit17parseSchemaOrNameERKSsb"
EVERYWHERE = "_ZNK3c1010TensorImpl27throw_data_ptr_access_errorEv"


def compile_shared(directory: Path, name: str, source: str, *flags: str) -> Path:
    """Compile C (or assembly in C) into a shared object and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    unit = directory / f"{path.name}.c"
    unit.write_text(source)
    # Undefined symbols are the point of most of them; libraries come after the source that needs them.
    command = ["gcc", "-shared", "-fPIC", "-O1", "-nostartfiles", "-o", str(path), str(unit), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    unit.unlink()
    return path


def stub_library(directory: Path, soname: str, symbols: Sequence[str], version: str = "") -> Path:
    """Make a library that defines symbols, with a symbol version if one is given."""
    source = "\n".join(f"int {symbol}(void) {{ return 0; }}" for symbol in symbols)
    flags = [f"-Wl,-soname,{soname}", "-nostdlib"]
    if version:
        script = directory / f"{soname}.map"
        directory.mkdir(parents=True, exist_ok=True)
        script.write_text(f"{version} {{ global: {' '.join(f'{one};' for one in symbols)} local: *; }};\n")
        flags.append(f"-Wl,--version-script,{script}")
    return compile_shared(directory, soname, source, *flags)


def calling(*symbols: str) -> str:
    """Return C source that calls symbols defined elsewhere."""
    declared = "\n".join(f"extern int {symbol}(void);" for symbol in symbols)
    called = " + ".join(f"{symbol}()" for symbol in symbols) or "0"
    return f"{declared}\nint entry(void) {{ return {called}; }}\n"


def unpacked_wheel(
    root: Path,
    files: Mapping[str, bytes],
    *,
    name: str = "sgl-kernel",
    version: str = "9.9.9",
    tags: Sequence[str] = ("cp310-abi3-linux_x86_64",),
    requires: Sequence[str] = ("torch",),
) -> Path:
    """Lay a wheel out below a directory: its files, METADATA, WHEEL and RECORD."""
    home = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {one}" for one in requires]
    wheel = ["Wheel-Version: 1.0", "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags)]
    package = {"sgl-kernel": "sgl_kernel"}.get(name, name)
    everything = {
        f"{package}/__init__.py": b"",
        **files,
        f"{home}/METADATA": ("\n".join(metadata) + "\n").encode(),
        f"{home}/WHEEL": ("\n".join(wheel) + "\n").encode(),
    }
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for path, content in everything.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow([path, f"sha256={digest}", len(content)])
    writer.writerow([f"{home}/RECORD", "", ""])
    (root / home / "RECORD").write_text(rows.getvalue())
    return root


def zipped(root: Path, file: Path) -> Path:
    """Pack a laid-out wheel into a .whl file."""
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(root).as_posix())
    return file
