"""A tree and a path as one types them in a shell: for hints that are to be followed to the letter."""

from __future__ import annotations

from pathlib import Path

from patchkit.environment import owner_of
from patchkit.target import Layout, TargetTree


def typed_path(path: Path, unprintable: str) -> str:
    """Return a path quoted for a shell, or a word in its place when it cannot be shown on a terminal."""
    import shlex

    return shlex.quote(str(path)) if str(path).isprintable() else unprintable


def typed_tree(tree: TargetTree) -> str:
    """Return the options that name just this tree, from whatever directory they are typed in."""
    import shlex

    root = f"--root {typed_path(tree.root, 'DIR')}"
    if tree.layout is Layout.PLAIN or not tree.version:
        return root
    engine = tree.engine if tree.distribution else shlex.quote(f"{tree.engine}=={tree.version}")
    return f"--target {engine} {root}{_python(tree)}"


def _python(tree: TargetTree) -> str:
    """Name the interpreter where its site directory does not tell which one it is."""
    owner, _ = owner_of(tree.root)
    if tree.python is None or (owner is not None and owner.parent == tree.python.parent):
        return ""
    return f" --python {typed_path(tree.python, 'EXE')}"
