"""The CUDA library of the Hopper kernels, compiled once from the same sources by the same nvcc."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from patchkit.errors import RefusedError
from patchkit.native.cache import require_ours
from patchkit.native.compiler import compile_with
from patchkit.process import require_success, run_child
from patchkit.record import dataclass

LIBRARY = "libpatchkit_attention.so"
"""The name that runtime/attention/hopper_library.py looks for beside itself."""

FLAGS = (
    *("-gencode=arch=compute_90a,code=sm_90a", "-O3", "-std=c++17", "-shared", "-cudart", "static"),
    *("-Xcompiler", "-fPIC,-fvisibility=hidden"),
)
_TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
_USUAL_TOOLKIT = "/usr/local/cuda"
_KEY = 20  # hexadecimal digits
_VERSION_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltLibrary:
    """Where the library is; `fresh` and with a `command` where it was compiled just now."""

    library: Path
    fresh: bool
    command: str = ""


def build_library(native: Path, cache: Path, *, on_start: Callable[[], None] | None = None) -> BuiltLibrary:
    """Compile native/attention below `cache`, or return what was compiled from the same sources, flags and nvcc.

    It needs no GPU. `on_start` is called where something has to be compiled. RefusedError without nvcc, with nvcc's
    words where it fails, and where the cache cannot be written, or others can write to it.
    """
    import tempfile

    nvcc = _find_nvcc()
    sources = (native / "attention").resolve()  # nvcc runs elsewhere
    directory = cache / f"attention-{_key(nvcc, sources)}"
    library = directory / LIBRARY
    if library.is_file():
        require_ours(cache)
        require_ours(directory)
        return BuiltLibrary(library=library, fresh=False)
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        require_ours(cache)
        with tempfile.TemporaryDirectory(prefix=f"{directory.name}.", dir=cache) as scratch:
            if on_start is not None:
                on_start()
            kernels = sorted(str(path) for path in sources.glob("*.cu"))
            command = compile_with((nvcc, *FLAGS, "-o", LIBRARY, *kernels), Path(scratch))
            directory.mkdir(exist_ok=True, mode=0o700)
            (Path(scratch) / LIBRARY).replace(library)
    except OSError as error:
        raise RefusedError(
            f"{directory} cannot be written", why=f"  {error}", hint="PATCHKIT_NATIVE=DIR names another place"
        ) from error
    return BuiltLibrary(library=library, fresh=True, command=command)


def _find_nvcc() -> str:
    """Return the nvcc on the PATH, else that of the toolkit that is named, else of the one in its usual place."""
    toolkits = [os.environ[name] for name in _TOOLKIT_VARIABLES if os.environ.get(name)] + [_USUAL_TOOLKIT]
    places = [None, *(str(Path(toolkit) / "bin") for toolkit in toolkits)]
    found = next((nvcc for place in places if (nvcc := shutil.which("nvcc", path=place))), None)
    if found is None:
        raise RefusedError(
            "there is no nvcc",
            why=f"  looked on the PATH and in {', '.join(place for place in places if place)}\n"
            "  the kernels for Hopper are CUDA; without them Triton's kernels answer",
            hint="install the CUDA toolkit (13.0 is tested), or name it: CUDA_HOME=DIR",
        )
    return found


def _key(nvcc: str, sources: Path) -> str:
    """Return a digest of everything that takes part in a build."""
    version = require_success(run_child((nvcc, "--version"), timeout=_VERSION_SECONDS)).stdout
    parts = [version, *(flag.encode() for flag in FLAGS)]
    for path in sorted(path for path in sources.iterdir() if path.suffix in (".cu", ".cuh", ".h")):
        parts += [path.name.encode(), path.read_bytes()]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()[:_KEY]
