"""Where the checks and measurements run: the device, torch there or not, and Triton's interpreter on a CPU."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from patchkit.errors import RefusedError
from patchkit.quoting import typed

_TORCH = "torch==2.13.0"


def prepare(device: str) -> str:
    """Return the device to use ("" asks for CUDA where there is some), with Triton set for it.

    Call it before anything of patchkit.runtime is imported: Triton decides at the decorator whether it interprets.
    Raises RefusedError without torch, without the device that was asked for, and on a CPU with Triton but no NumPy.
    """
    require_torch()
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise RefusedError("there is no CUDA device here", hint="--device cpu runs what a CPU can run")
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen == "cpu":
        _require_numpy()
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)  # small tensors; more threads would wait for each other
    return chosen


def _require_numpy() -> None:
    if find_spec("triton") is not None and find_spec("numpy") is None:
        raise RefusedError(
            "NumPy is not installed",
            why="  on a CPU Triton's interpreter runs its kernels, and computes in it",
            hint=install("numpy"),
        )


def install(*what: str) -> str:
    """Return the command that installs something for the Python that runs: the pip on the PATH may be another's."""
    return typed(sys.executable, "-m", "pip", "install", *what)


def require_torch() -> None:
    """Raise RefusedError without torch."""
    if find_spec("torch") is None:
        raise RefusedError(
            "torch is not installed",
            why="the attention operators and their references are written in it",
            hint=f"{install(_TORCH, 'numpy')}; in a checkout: {install('.[torch]', 'numpy')}",
        )
