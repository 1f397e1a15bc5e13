"""What a measurement was made on: device, driver, clocks, versions."""

from __future__ import annotations

import platform

import torch

from patchkit.errors import RefusedError
from patchkit.process import run_child

_ASKED = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "temperature.gpu", "power.draw", "power.limit")


def device_facts(device: str) -> dict[str, object]:
    """Return the facts of a device as they are now; clocks and power of a GPU are read, never set."""
    facts: dict[str, object] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        facts |= {
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "capability": list(torch.cuda.get_device_capability()),
            "multiprocessors": properties.multi_processor_count,
            "l2_bytes": properties.L2_cache_size,
            **_asked(),
        }
    return facts


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _asked() -> dict[str, object]:
    """Ask nvidia-smi; a machine without it says so in the record."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        answer = run_child(command, timeout=30.0)
    except RefusedError as error:
        return {"nvidia_smi": error.what}
    if answer.status:
        return {"nvidia_smi": f"ended with status {answer.status}"}
    return dict(zip(_ASKED, (field.strip() for field in answer.stdout.decode().split(",")), strict=False))
