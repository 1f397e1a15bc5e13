"""What is written beside a stage 2: for which library and which torch it was built. native/shim/manifest.c reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from patchkit.native.library import Library
from patchkit.native.torch_tree import TorchTree


def manifest_path(stage2: Path) -> Path:
    """Return where the manifest of a stage 2 lies."""
    return stage2.with_name(f"{stage2.name}.manifest")


def manifest_text(content: bytes, layout: str, torch: TorchTree | None, libraries: Sequence[Library]) -> str:
    """Return the manifest of a stage 2 with this content; without a torch any process will do.

    `layout` is the digest of the structs that it shares with stage 1.
    """
    lines = ["format 1", f"length {len(content)}", f"sha256 {hashlib.sha256(content).hexdigest()}", f"layout {layout}"]
    if torch is None:
        lines.append("torch -")
    else:
        lines += [f"torch {torch.version}", f"c10 {torch.c10}", f"cxx11 {int(torch.cxx11)}"]
    lines += [f"engine {library.path.name} {library.identity}" for library in libraries]
    return "\n".join(lines) + "\n"
