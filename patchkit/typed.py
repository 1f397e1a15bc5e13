"""A tree as one types it in a shell: for hints that are to be followed to the letter."""

from __future__ import annotations

from patchkit.environment import owner_of
from patchkit.quoting import typed, typed_path
from patchkit.target import Layout, TargetTree


def typed_tree(tree: TargetTree) -> str:
    """Return the options that name just this tree, from whatever directory they are typed in."""
    root = f"--root {typed_path(tree.root, 'DIR')}"
    if tree.layout is Layout.PLAIN or not tree.version:
        return root
    engine = tree.engine if tree.distribution else typed(f"{tree.engine}=={tree.version}")
    return f"--target {engine} {root}{_python(tree)}"


def _python(tree: TargetTree) -> str:
    """Name the interpreter where its site directory does not tell which one it is."""
    owner, _ = owner_of(tree.root)
    if tree.python is None or (owner is not None and owner.parent == tree.python.parent):
        return ""
    return f" --python {typed_path(tree.python, 'EXE')}"
