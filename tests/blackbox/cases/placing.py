"""Where a hunk goes: no fuzz, offsets only where one place remains, never into another function."""

from __future__ import annotations

from tests.blackbox.case import Case, lines

TWIN = (
    "        for request in batch:",
    "            request.rate = 1",
    "            request.send()",
    "        return batch",
)
OTHER = (
    "class Engine:",
    "    def generate(self, batch):",
    *TWIN,
    "",
    "    async def async_generate(self, batch):",
    *TWIN,
)
SHIFT = ("import os", "import sys", "", "")


def _diff(header: str, *body: str) -> bytes:
    return lines("diff --git a/e.py b/e.py", "--- a/e.py", "+++ b/e.py", header, *body)


def _hunk(header: str) -> bytes:
    return _diff(header, f" {TWIN[0]}", f"-{TWIN[1]}", f"+{TWIN[1].replace('1', '2')}", f" {TWIN[2]}", f" {TWIN[3]}")


def _patched(text: tuple[str, ...], line: int) -> bytes:
    return lines(
        *(row.replace("rate = 1", "rate = 2") if number == line else row for number, row in enumerate(text, 1))
    )


LONG = tuple(f"value_{number} = {number}" for number in range(1, 31))
U0 = _diff("@@ -10 +10 @@", "-value_10 = 10", "+value_10 = 0")
U0_INSERT = _diff("@@ -10,0 +11,2 @@", "+inserted = 1", "+inserted_too = 2")

CASES = (
    Case(
        name="exact line of two places",
        why="the same context twice: the stated line decides",
        before={"e.py": lines(*OTHER)},
        patch=_hunk("@@ -3,4 +3,4 @@ def generate(self, batch):"),
        after={"e.py": _patched(OTHER, 4)},
    ),
    Case(
        name="second of two places",
        why="the same context twice: the stated line decides",
        before={"e.py": lines(*OTHER)},
        patch=_hunk("@@ -9,4 +9,4 @@ async def async_generate(self, batch):"),
        after={"e.py": _patched(OTHER, 10)},
    ),
    Case(
        name="only the twin is left",
        why="slime's Engine.generate hunk lands in async_generate with git apply",
        before={"e.py": lines(*SHIFT, *OTHER).replace(b"rate = 1", b"rate = 9", 1)},
        patch=_hunk("@@ -3,4 +3,4 @@ def generate(self, batch):"),
        after=None,
        status=1,
        says=("moved", "e.py"),
    ),
    Case(
        name="the function is gone",
        why="it may have been renamed: nothing proves it, and --strict asks for a proof",
        before={"e.py": lines(*SHIFT, "class Engine:", "    async def async_generate(self, batch):", *TWIN)},
        patch=_hunk("@@ -3,4 +3,4 @@ def generate(self, batch):"),
        after=None,
        status=1,
        options=("--strict",),
        says=("scope unproven",),
    ),
    Case(
        name="offset in the right function",
        why="found once, and the heading agrees",
        before={"e.py": lines(*SHIFT, *OTHER[:6])},
        patch=_hunk("@@ -3,4 +3,4 @@ def generate(self, batch):"),
        after={"e.py": _patched((*SHIFT, *OTHER[:6]), 8)},
    ),
    Case(
        name="offset between twins",
        why="two places, one of them in the function that the heading names",
        before={"e.py": lines(*SHIFT, *OTHER)},
        patch=_hunk("@@ -3,4 +3,4 @@ def generate(self, batch):"),
        after={"e.py": _patched((*SHIFT, *OTHER), 8)},
    ),
    Case(
        name="offset between twins without a heading",
        why="two places and nothing that tells them apart",
        before={"e.py": lines(*SHIFT, *OTHER)},
        patch=_hunk("@@ -3,4 +3,4 @@"),
        after=None,
        status=1,
    ),
    Case(
        name="one line of context differs",
        why="GNU patch takes it with fuzz 1",
        before={"e.py": lines(*LONG).replace(b"value_8 = 8", b"value_8 = 88")},
        patch=_diff(
            "@@ -8,5 +8,5 @@",
            " value_8 = 8",
            " value_9 = 9",
            "-value_10 = 10",
            "+value_10 = 0",
            " value_11 = 11",
            " value_12 = 12",
        ),
        after=None,
        status=1,
        says=("e.py",),
    ),
    Case(
        name="short trailing context",
        why="6 lines above and 3 below, in the middle: GNU patch anchors it at the end of the file",
        before={"e.py": lines(*LONG)},
        patch=_diff(
            "@@ -4,10 +4,10 @@",
            *(f" value_{number} = {number}" for number in range(4, 10)),
            "-value_10 = 10",
            "+value_10 = 0",
            *(f" value_{number} = {number}" for number in range(11, 14)),
        ),
        after={"e.py": lines(*LONG).replace(b"value_10 = 10\n", b"value_10 = 0\n")},
    ),
    Case(
        name="start of file does not float",
        why="a hunk that begins at line 1 with less context is anchored at the start, as git does",
        before={"e.py": lines("first = 0", *LONG)},
        patch=_diff("@@ -1,3 +1,4 @@", "+new = 0", " value_1 = 1", " value_2 = 2", " value_3 = 3"),
        after=None,
        status=1,
    ),
    Case(
        name="zero context without proof",
        why="-U0: nothing shows that line 10 is the line that is meant",
        before={"e.py": lines(*LONG)},
        patch=U0_INSERT,
        after=None,
        status=1,
    ),
    Case(
        name="zero context with a base",
        why="-U0: the preimage is proven by the base tree",
        before={"e.py": lines(*LONG)},
        patch=U0,
        after={"e.py": lines(*LONG).replace(b"value_10 = 10\n", b"value_10 = 0\n")},
        base=True,
    ),
    Case(
        name="zero context insertion with a base",
        why="a count of 0 means: behind this line",
        before={"e.py": lines(*LONG)},
        patch=U0_INSERT,
        after={"e.py": lines(*LONG).replace(b"value_10 = 10\n", b"value_10 = 10\ninserted = 1\ninserted_too = 2\n")},
        base=True,
    ),
    Case(
        name="half of it is there",
        why="one hunk of two is there already: neither applied nor not",
        before={"e.py": lines(*LONG).replace(b"value_5 = 5\n", b"value_5 = 0\n")},
        patch=_diff(
            "@@ -4,3 +4,3 @@",
            *(" value_4 = 4", "-value_5 = 5", "+value_5 = 0", " value_6 = 6"),
            "@@ -19,3 +19,3 @@",
            *(" value_19 = 19", "-value_20 = 20", "+value_20 = 0", " value_21 = 21"),
        ),
        after=None,
        status=1,
        says=("partly applied",),
    ),
    Case(
        name="breaks the syntax",
        why="placed by an offset, and the file no longer parses",
        before={"e.py": lines(*SHIFT, "call(", "    first=1,", "    second=2,", ")")},
        patch=_diff("@@ -1,4 +1,4 @@", " call(", "     first=1,", "-    second=2,", "+    first=2,", " )"),
        after=None,
        status=1,
        says=("e.py",),
    ),
    Case(
        name="every refusal is named",
        why="not only the first",
        before={"e.py": lines(*LONG), "g.py": lines(*LONG)},
        patch=_diff("@@ -4,3 +4,3 @@", " value_4 = 44", "-value_5 = 5", "+value_5 = 0", " value_6 = 6")
        + _diff("@@ -4,3 +4,3 @@", " value_4 = 44", "-value_5 = 5", "+value_5 = 0", " value_6 = 6").replace(
            b"e.py", b"g.py"
        )
        + _diff("@@ -4,3 +4,3 @@", " value_4 = 4", "-value_5 = 5", "+value_5 = 0", " value_6 = 6").replace(
            b"e.py", b"h.py"
        ),
        after=None,
        status=1,
        says=("e.py", "g.py", "h.py"),
    ),
)
