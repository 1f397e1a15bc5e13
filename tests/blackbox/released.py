"""Published trees of vLLM and sglang, fetched once with pip and kept unpacked, without their shared objects.

sglang comes as its wheel. vLLM's wheels are 250 to 380 MB, of which the tests need 15 MB of Python: its sdist has the
same package. But pip unpacks an sdist only to ask its build backend for metadata, and vLLM's wants torch; so pip is
handed a `setuptools` that keeps a copy of the unpacked directory and stops.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.dist_info import write_dist_info

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("PATCHKIT_TEST_CACHE") or CHECKOUT / ".cache" / "released")
PIP_SECONDS = 180

_BACKEND = """import os, shutil, sys
if os.path.exists("PKG-INFO"):
    shutil.copytree(os.getcwd(), os.environ["KEEP_SDIST"], symlinks=True, dirs_exist_ok=True)
    sys.exit(9)
"""
_WHEEL_TAGS = (
    *("--python-version", "3.12", "--implementation", "cp", "--abi", "cp312", "--abi", "abi3", "--abi", "none"),
    *("--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64"),
    *("--platform", "manylinux_2_34_x86_64", "--platform", "manylinux_2_35_x86_64", "--platform", "any"),
)


class UnreachableError(Exception):
    """pip could not bring a release; the message ends with pip's own words."""


def released_tree(engine: str, version: str) -> Path:
    """Return an unpacked release, `<package>/` and its dist-info, to be copied and never to be written to."""
    tree = CACHE / f"{engine}-{version}"
    if not tree.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=CACHE) as scratch:
            made = Path(scratch, "tree")
            fetch = _unpack_sdist if engine == "vllm" else _unpack_wheel
            fetch(engine, version, Path(scratch), made)
            try:
                made.rename(tree)
            except OSError:  # another process was faster
                if not tree.is_dir():
                    raise
    return tree


def _unpack_wheel(engine: str, version: str, scratch: Path, tree: Path) -> None:
    _pip("download", "--only-binary", ":all:", *_WHEEL_TAGS, "-d", str(scratch), f"{engine}=={version}")
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if not member.endswith(".so"):
                archive.extract(member, tree)


def _unpack_sdist(engine: str, version: str, scratch: Path, tree: Path) -> None:
    kept = scratch / "sdist"
    stub = scratch / "stub" / "setuptools"
    stub.mkdir(parents=True)
    stub.joinpath("__init__.py").write_text(_BACKEND)
    environment = {"KEEP_SDIST": str(kept), "PYTHONPATH": str(stub.parent)}
    said = _pip(
        *("download", "--no-build-isolation", "--no-binary", engine, "-d", str(scratch), f"{engine}=={version}"),
        may_fail=True,
        **environment,
    )
    if not (kept / engine).is_dir():
        raise UnreachableError(said)
    shutil.copytree(kept / engine, tree / engine, symlinks=True)
    write_dist_info(tree, engine, version)


def _pip(*arguments: str, may_fail: bool = False, **environment: str) -> str:
    """Run pip outside the checkout, bounded in time; return the last lines it said."""
    command = [sys.executable, "-m", "pip", arguments[0], "-q", "--disable-pip-version-check", "--no-deps"]
    try:
        done = subprocess.run(
            [*command, *arguments[1:]],
            cwd=tempfile.gettempdir(),
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"pip took over {PIP_SECONDS} s: {' '.join(arguments)}") from error
    said = f"{' '.join(arguments)}: " + "\n".join(done.stderr.strip().splitlines()[-3:])
    if done.returncode and not may_fail:
        raise UnreachableError(said)
    return said
