"""What follows the files of a plan: bytecode made anew, and the files that show the configuration."""

from __future__ import annotations

from pathlib import PurePosixPath

from patchkit.bytecode import cached_path, recompile
from patchkit.generated import module_path
from patchkit.plan import Plan
from patchkit.receipt import read_receipt, read_stored
from patchkit.state import StateDirectory


def generated_files(plan: Plan) -> dict[str, bytes] | None:
    """Return the files of the state directory that show the configuration; None when they stay as they are."""
    if plan.generated is None:
        return {}
    return None if plan.generated.state is None else dict(plan.generated.state)


def compile_anew(plan: Plan, dropped: tuple[PurePosixPath, ...], epoch: int | None) -> tuple[str, ...]:
    """Make the bytecode anew that was dropped; that of autoconf.py in any case, and such as is checked by hash: two
    flips within a second leave a file of the same size and time, which Python would not read again.
    """
    tree = plan.tree
    module = module_path(tree)
    checked: tuple[PurePosixPath, ...] = ()
    if plan.generated is not None and tree.python is not None and any(edit.path == module for edit in plan.edits):
        checked = (cached_path(module, tree.python_version),)
    others = tuple(path for path in dropped if path not in checked)
    if not checked and not others:
        return ()
    timed = {} if epoch is None else {"SOURCE_DATE_EPOCH": str(epoch)}
    hashed = {"SOURCE_DATE_EPOCH": str(epoch or 0)}
    stale = recompile(tree.root, others, python=tree.python, environment=timed)
    return (*stale, *recompile(tree.root, checked, python=tree.python, environment=hashed))


def is_stale(state: StateDirectory, plan: Plan) -> bool:
    """Tell whether the files that show the configuration, or what was asked for, are others than the plan's."""
    files = generated_files(plan)
    if not files or not plan.layers:
        return False
    try:
        if read_receipt(state.receipt).configuration != plan.configuration:
            return True
        return any(read_stored(state.directory / name, len(content)) != content for name, content in files.items())
    except (OSError, ValueError):
        return True
