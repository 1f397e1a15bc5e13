"""Every Triton kernel compiled for Hopper, on a machine without a GPU: what Triton cannot lower is found in CI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchkit.attention.here import install
from patchkit.errors import RefusedError
from patchkit.record import dataclass
from patchkit.runtime.attention.registry import Compilation, load_compilations
from patchkit.runtime.attention.triton_support import interpreted

CAPABILITY = 90
_WARP = 32
_MOST_SHARED = 232_448  # bytes of shared memory of a block on Hopper, CUDA's programming guide, table of capabilities


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """How a kernel compiled: shared memory in bytes and the size of the machine code, or the first line of the
    error.
    """

    name: str
    shared: int
    code: int
    fault: str


def compile_kernels() -> Iterator[Compiled]:
    """Yield how every Triton kernel compiles for sm_90; raises RefusedError where Triton is missing or interprets."""
    if interpreted():
        raise RefusedError("Triton interprets here", why="TRITON_INTERPRET=1 is set", hint="unset it to compile")
    try:
        compilations = load_compilations()
    except ModuleNotFoundError as error:
        raise RefusedError(
            "Triton is not installed", why=f"  {error}", hint=f"in a checkout: {install('.[kernels]')}"
        ) from error
    for one in compilations:
        yield _compile(one)


def _compile(one: Compilation) -> Compiled:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {name: one.signature.get(name, "constexpr") for name in one.function.arg_names}
    source = ASTSource(one.function, types, one.constants)
    options = {"num_warps": one.num_warps, "num_stages": one.num_stages, "maxnreg": one.registers}
    try:
        made: Any = triton.compile(source, target=GPUTarget("cuda", CAPABILITY, _WARP), options=options)
    except Exception as error:  # noqa: BLE001 -- Triton raises what its passes raise; the fault is in the record
        said = str(error).strip() or type(error).__name__
        return Compiled(name=one.name, shared=0, code=0, fault=said.splitlines()[0])
    shared = int(made.metadata.shared)
    fault = f"needs {shared} bytes of shared memory, a block has {_MOST_SHARED}" if shared > _MOST_SHARED else ""
    return Compiled(name=one.name, shared=shared, code=len(made.asm["cubin"]), fault=fault)
