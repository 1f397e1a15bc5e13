"""Compiles the CPU extension of vllm 0.6.3 from the sdist's csrc/cpu with g++.

The project's own CMake file does not configure where torch is a CPU build without Caffe2's CUDA files beside it, and
wants oneDNN. The seven sources that are needed compile by themselves, against torch 2.4 as against torch 2.13.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.engines.recipe import FLAGS, LIBRARIES, SOURCES

_ASK_TORCH = """
import json, sysconfig, torch, torch.utils.cpp_extension as extension
include = [*extension.include_paths(), sysconfig.get_paths()["include"]]
print(json.dumps([include, extension.library_paths(), int(torch._C._GLIBCXX_USE_CXX11_ABI)]))
"""


def compile_extension(csrc: Path, scratch: Path, python: Path, library: Path) -> None:
    """Compile against the torch of an interpreter, as one unit: most of the time goes into torch's headers."""
    asked = subprocess.run([python, "-c", _ASK_TORCH], capture_output=True, text=True, check=True)
    include, libraries, abi = json.loads(asked.stdout)
    unit = scratch / "unit.cpp"
    unit.write_text("".join(f'#include "cpu/{source}.cpp"\n' for source in SOURCES))
    compiling = [*FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *(f"-I{path}" for path in (csrc, *include))]
    linking = [*(f"-L{path}" for path in libraries), *LIBRARIES]
    subprocess.run(["g++", *compiling, "-shared", "-o", library, unit, *linking], check=True)
