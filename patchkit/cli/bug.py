"""What is said and kept when patchkit itself is at fault."""

from __future__ import annotations

import sys

from patchkit.errors import ExitStatus
from patchkit.output import Output
from patchkit.version import VERSION


def report_bug(error: Exception, output: Output) -> int:
    """Write a short report file and say where it is; return the exit status of a bug."""
    import os
    import tempfile
    import traceback

    text = "".join(
        (
            f"patchkit {VERSION}, Python {sys.version.split()[0]}, {sys.platform}\n",
            f"arguments: {sys.argv[1:]!r}\n\n",
            *traceback.format_exception(error),
        )
    )
    try:
        descriptor, name = tempfile.mkstemp(prefix="patchkit-bug-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as report:
            report.write(text)
    except OSError:
        name = ""
        for line in text.splitlines():
            output.note(line)
    what = f"a bug in patchkit: {type(error).__name__}: {error}"
    output.note(f"error: {what}", style="bad")
    output.note("  the tree is safe: what was begun is finished or undone by the next apply or revert")
    if name:
        output.next_step(f"report it with {name}", beside=True)
    output.failure(ExitStatus.BUG, what=what, hint=f"report it with {name}" if name else "")
    return int(ExitStatus.BUG)
