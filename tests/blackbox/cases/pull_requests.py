"""A pull request's diff onto an installed engine: a part of it is not in any wheel."""

from __future__ import annotations

from tests.blackbox.case import Case, lines
from tests.blackbox.wheels import CHANGED, DIFF, NEW_FILE, engine

VLLM = ("vllm", "0.1.0")
PACKAGE = DIFF.encode() + NEW_FILE.encode()
EXTRA = b"import os\nEXTRA = 1\n"


def _new(path: str) -> bytes:
    return lines(f"diff --git a/{path} b/{path}", "new file mode 100644", "--- /dev/null", f"+++ b/{path}") + (
        b"@@ -0,0 +1 @@\n+new\n"
    )


def _changed(path: str) -> bytes:
    return lines(
        f"diff --git a/{path} b/{path}", f"--- a/{path}", f"+++ b/{path}", "@@ -1,3 +1,3 @@", " a", "-b", "+B", " c"
    )


HARMLESS = _changed("tests/test_engine.py") + _new("docs/engine.md") + _new("benchmarks/run.py")
BUILD = _changed("csrc/attention/kernel.cu") + _changed("CMakeLists.txt")
DEPENDENCIES = _changed("pyproject.toml") + _changed("requirements/common.txt")


def _case(name: str, why: str, patch: bytes, *says: str, only: bool) -> Case:
    return Case(
        name=name,
        why=why,
        before=engine(*VLLM),
        wheel=VLLM,
        patch=patch,
        after={"vllm/engine.py": CHANGED, "vllm/extra.py": EXTRA} if only else None,
        status=0 if only else 1,
        options=("--package-only",) if only else (),
        says=says,
    )


CASES = (
    _case("package only", "nothing outside, nothing to allow", PACKAGE, only=True),
    _case(
        "tests and docs",
        "named, and not left out unasked",
        HARMLESS + PACKAGE,
        "tests/test_engine.py",
        "docs/engine.md",
        "harmless",
        only=False,
    ),
    _case(
        "tests and docs, allowed",
        "named and left out",
        HARMLESS + PACKAGE,
        "tests/test_engine.py",
        "harmless",
        only=True,
    ),
    _case(
        "kernels",
        "a Python half without its kernel",
        BUILD + PACKAGE,
        "csrc/attention/kernel.cu",
        "needs a build",
        only=False,
    ),
    _case(
        "kernels, allowed", "the user says so", BUILD + PACKAGE, "csrc/attention/kernel.cu", "needs a build", only=True
    ),
    _case(
        "dependencies",
        "a requirement changed",
        DEPENDENCIES + PACKAGE,
        "pyproject.toml",
        "changes dependencies",
        only=False,
    ),
    _case("dependencies, allowed", "the user says so", DEPENDENCIES + PACKAGE, "changes dependencies", only=True),
    Case(
        name="package file that is gone",
        why="--package-only leaves out what lies outside the package, not what the package lacks",
        before=engine(*VLLM),
        wheel=VLLM,
        patch=PACKAGE + _changed("vllm/attention/gone.py"),
        after=None,
        status=1,
        options=("--package-only",),
        says=("vllm/attention/gone.py",),
    ),
    Case(
        name="beside the package",
        why="in an installed tree only the engine's package is written",
        before={**engine(*VLLM), "requests/__init__.py": b"a\nb\nc\n"},
        wheel=VLLM,
        patch=PACKAGE + _changed("requests/__init__.py"),
        after=None,
        status=1,
        says=("requests/__init__.py",),
    ),
)
