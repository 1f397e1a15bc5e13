"""What is asked of flash-attention: the struct that its host code hands to its kernels.

`run_mha_fwd` takes it by reference under one mangled name whatever is in it, so only the header tells.
"""

from __future__ import annotations

from pathlib import Path

from patchkit.abi.layout_dwarf import ProbedType
from patchkit.abi.probe import Probe, run_probe

STRUCT = "Flash_fwd_params"
# The header's other includes bring nothing that its structs are made of; without them neither CUDA nor a minute of
# compiling is needed. at::PhiloxCudaState is torch's own.
_STAND_INS = (
    "cuda.h",
    "namespace_config.h",
    "ATen/CUDAGeneratorImpl.h",
    "ATen/cuda/CUDAGeneratorImpl.h",
    "ATen/cuda/CUDAGraphsUtils.cuh",
)
_PREAMBLE = (
    "#include <cstdint>",
    "#include <ATen/cuda/PhiloxCudaState.h>",
    "typedef struct CUstream_st *cudaStream_t;",
    "#define FLASH_NAMESPACE flash",
)


def probe_flash(header: Path, torch: Path, *, compiler: str) -> ProbedType:
    """Read Flash_fwd_params of a flash.h as it is with the headers of a torch: its package directory."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="patchkit-flash-") as directory:
        for name in _STAND_INS:
            stand_in = Path(directory) / name
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            stand_in.write_text("")
        spelled = f"flash::{STRUCT}" if b"namespace FLASH_NAMESPACE" in header.read_bytes() else STRUCT
        probe = Probe(
            preamble=(*_PREAMBLE, f'#include "{header.resolve()}"'),
            types=((STRUCT, spelled),),
            includes=(Path(directory), torch / "include"),
            options=(f"-I{directory}",),  # before the directory of torch's own headers
        )
        return run_probe(probe, compiler)[0]
