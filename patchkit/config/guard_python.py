"""Both variants of a Python file in one text: where they differ, a guard `if CONFIG_X:` stands, as small as is valid.

Statement lists of the two syntax trees are aligned; where a header is equal the bodies are compared, else a guard is
made. What cannot be guarded where it stands (see guard_text.py, guard_scope.py) is guarded one statement further out.
All edits are in lines of the base, so that those of several toggles can be put together (guard_compose.py).
Docstrings and comments that a patch changes without changing code are left as the base has them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from patchkit.config.guard_align import (
    DEFINITIONS,
    condition_of,
    only_more_names,
    paired_bodies,
    same_header,
    same_tree,
    share_a_body,
    unmatched_runs,
)
from patchkit.config.guard_edit import GuardEdit, Level
from patchkit.config.guard_scope import FUNCTIONS, Scopes, declares, reads_source
from patchkit.config.guard_source import (
    PartialSourceError,
    Source,
    UnguardableError,
    first_line,
    last_line,
    parse_source,
)
from patchkit.config.guard_text import (
    UNIT,
    begins_line,
    else_line,
    end_of_header,
    indent_of,
    is_elif,
    moved,
    repeated_lines,
    require_whole_lines,
    segment,
    with_comments,
)


def guard_variants(base: Source, new: Source, symbol: str, scopes: Scopes | None = None) -> tuple[GuardEdit, ...]:
    """Return the edits after which the base holds both variants: `new` where CONFIG_symbol is true.

    `scopes` may know the base already. UnguardableError where a difference cannot be switched, as a `from __future__`
    import.
    """
    guards = _Guards(base, new, f"CONFIG_{symbol}".encode(), scopes or Scopes())
    try:
        guards.compare(base.body, new.body, documented=True)
    except PartialSourceError:
        return guard_variants(base, parse_source(new.lines), symbol, scopes)
    edits = sorted(enumerate(guards.edits), key=lambda one: (one[1].start, one[1].end > one[1].start, one[0]))
    done = 0
    for _, edit in edits:
        if edit.start < done:
            raise UnguardableError("two changes meet on one line", edit.start + 1)
        done = edit.end
    return tuple(edit for _, edit in edits)


class _Guards:
    """The guards of one pair of sources, as they are found."""

    def __init__(self, old: Source, new: Source, name: bytes, scopes: Scopes) -> None:
        self.old = old
        self.new = new
        self.name = name
        self.edits: list[GuardEdit] = []
        self._old_lines = frozenset(old.lines)
        self._scopes = scopes
        self._in_function = False

    def compare(self, old: list[ast.stmt], new: list[ast.stmt], *, documented: bool = False) -> None:
        """Guard the differences of two statement lists; `documented`: they may begin with a docstring."""
        for run in unmatched_runs(old, new, documented=documented):
            if len(run.old) == 1 == len(run.new) and run.akin:
                self._compare_pair(old, run.old.start, new[run.new.start])
            else:
                self._guard(old, run.old, new[run.new.start : run.new.stop])

    def _compare_pair(self, old: list[ast.stmt], place: int, after: ast.stmt) -> None:
        before = old[place]
        if id(after) in self.new.foreign and id(after) not in self.new.partial:
            raise PartialSourceError  # a statement of the base, which stood elsewhere
        kept = len(self.edits)
        level = None
        if isinstance(before, DEFINITIONS):
            level = Level.FUNCTION
        try:
            self._compare_inside(before, after)
        except UnguardableError as error:
            del self.edits[kept:]
            self._guard(old, range(place, place + 1), [after], level, error.reason)

    def _compare_inside(self, before: ast.stmt, after: ast.stmt) -> None:
        """Guard what differs within two statements that are akin, or say why a guard must stand around them."""
        self._require_open(before, after)
        if isinstance(before, ast.ImportFrom) and isinstance(after, ast.ImportFrom):
            self._guard_names(before, after)
        elif same_header(before, after):
            with self._inside(before):
                self._compare_bodies(before, after)
        elif isinstance(before, ast.If) and isinstance(after, ast.If) and same_tree(after.orelse, [before]):
            self._guard_first_branch(before, after)
        elif isinstance(before, ast.If | ast.While | ast.For | ast.AsyncFor):
            self._guard_condition(before, after)
            self._compare_bodies(before, after)
        else:
            raise UnguardableError(_header_reason(before), before.lineno)

    @contextmanager
    def _inside(self, statement: ast.stmt) -> Iterator[None]:
        """Remember below a function that it is one."""
        outside = self._in_function
        self._in_function = outside or isinstance(statement, FUNCTIONS)
        try:
            yield
        finally:
            self._in_function = outside

    def _guard_names(self, before: ast.ImportFrom, after: ast.ImportFrom) -> None:
        """Import what only one variant takes from a module by a statement of its own, beside the one for both."""
        added, removed = only_more_names(before, after), only_more_names(after, before)
        indent = indent_of(self.old, before)
        names = ", ".join(ast.unparse(alias) for alias in added or removed)
        taken = f"from {'.' * before.level}{before.module or ''} import {names}".encode()
        condition = b"if " if added else b"if not "
        lines = [self._line(indent, condition, self.name), indent + UNIT + taken + self.old.newline]
        start, end = first_line(before) - 1, last_line(before)
        require_whole_lines(self.old, [before])
        if added:
            self._add(end, end, Level.STATEMENT, lines)
        else:
            require_whole_lines(self.new, [after])
            self._add(start, end, Level.STATEMENT, [*moved(self.new, [after], indent), *lines])

    def _require_open(self, before: ast.stmt, after: ast.stmt) -> None:
        if not (isinstance(before, DEFINITIONS) and isinstance(after, DEFINITIONS)):
            return
        if not same_header(before, after):
            raise UnguardableError(_header_reason(before), before.lineno)
        if reader := reads_source(before):
            raise UnguardableError(f"compiled from its source ({reader})", before.lineno)
        scoped = self._in_function or isinstance(before, FUNCTIONS)
        if scoped and (why := self._scopes.hazard(before, after)):
            raise UnguardableError(why, before.lineno)

    def _compare_bodies(self, before: ast.stmt, after: ast.stmt) -> None:
        for one, other in paired_bodies(before, after):
            for source, body in ((self.old, one), (self.new, other)):
                # Where statements are shared the header is that of the base.
                if id(after) not in self.new.partial and not begins_line(source, body[0]):
                    raise UnguardableError("its body stands on the line of its header", before.lineno)
            self.compare(one, other, documented=isinstance(before, DEFINITIONS))
        for name in ("orelse", "finalbody"):
            one, other = getattr(before, name, []), getattr(after, name, [])
            if same_tree(one, other):
                continue
            if name == "finalbody" and not (one and other):
                raise UnguardableError("its finally: is in one variant only", before.lineno)
            self._compare_else(before, after, one, other)

    def _compare_else(self, before: ast.stmt, after: ast.stmt, one: list[ast.stmt], other: list[ast.stmt]) -> None:
        old_elif, new_elif = is_elif(self.old, before), is_elif(self.new, after)
        if not one:
            self._add_else(before, other)
        elif old_elif and new_elif and self._compare_elif(one[0], other[0]):
            return
        elif not old_elif and not new_elif and other:
            self.compare(one, other)
        elif not old_elif and not other:
            self._guard(one, range(len(one)), [])
        else:
            self._nest_else(before, one, other)

    def _add_else(self, before: ast.stmt, other: list[ast.stmt]) -> None:
        """Put an else part behind a statement that has none: `elif CONFIG_X:`, or `else:` and a guard in it."""
        if getattr(before, "finalbody", None):
            raise UnguardableError("its else: would stand before its finally:", before.lineno)
        require_whole_lines(self.old, _last_body(before))
        indent = indent_of(self.old, before)
        if isinstance(before, ast.If):
            added = [self._line(indent, b"elif ", self.name), *moved(self.new, other, indent + UNIT)]
        else:
            deeper = indent + UNIT
            added = [self._line(indent, b"else"), self._line(deeper, b"if ", self.name)]
            added += moved(self.new, other, deeper + UNIT)
        end = last_line(before)
        self._add(end, end, Level.STATEMENT, added)

    def _compare_elif(self, before: ast.stmt, after: ast.stmt) -> bool:
        """Guard what differs between two `elif` parts; False when only all of it can be guarded."""
        if not (isinstance(before, ast.If) and isinstance(after, ast.If)):
            return False
        kept = len(self.edits)
        try:
            if same_header(before, after):
                self._compare_bodies(before, after)
            elif same_tree(after.orelse, [before]):
                place = before.lineno - 1
                self._add(place, place, Level.STATEMENT, self._branch(after, indent_of(self.old, before), b"elif"))
            elif same_tree(before.orelse, [after]):
                end = end_of_header(self.old, before.test, before.body)
                header = [b"elif not ", self.name, b" and (", segment(self.old, before.test), b")"]
                self._add(before.lineno - 1, end, Level.STATEMENT, [self._line(indent_of(self.old, before), *header)])
            else:
                self._guard_condition(before, after)
                self._compare_bodies(before, after)
        except UnguardableError:
            del self.edits[kept:]
            return False
        return True

    def _branch(self, after: ast.If, indent: bytes, keyword: bytes) -> list[bytes]:
        require_whole_lines(self.new, after.body)
        header = self._line(indent, keyword, b" ", self.name, b" and (", segment(self.new, after.test), b")")
        return [header, *moved(self.new, after.body, indent + UNIT)]

    def _guard_first_branch(self, before: ast.If, after: ast.If) -> None:
        """Put a new first branch above an `if`, which becomes an `elif`."""
        place = before.lineno - 1
        indent, line = indent_of(self.old, before), self.old.lines[place]
        if indent.strip():
            raise UnguardableError("shares a line with what stands before it", before.lineno)
        chained = indent + (b"" if line.startswith(indent + b"elif") else b"el") + line[len(indent) :]
        keyword = b"elif" if line.startswith(indent + b"elif") else b"if"
        self._add(place, place + 1, Level.STATEMENT, [*self._branch(after, indent, keyword), chained])

    def _guard_condition(self, before: ast.stmt, after: ast.stmt) -> None:
        """Make the condition (what a loop goes over) a choice: `if (NEW) if CONFIG_X else (OLD):`."""
        old, new = condition_of(before), condition_of(after)
        targets = [getattr(one, "target", None) for one in (before, after)]
        if old is None or new is None or not (same_tree(*targets) and share_a_body(before, after)):
            raise UnguardableError(_header_reason(before), before.lineno)
        end = end_of_header(self.old, old, before.body)  # type: ignore[attr-defined]
        end_of_header(self.new, new, after.body)  # type: ignore[attr-defined]
        line = self.old.lines[before.lineno - 1][before.col_offset :]
        opening = next(
            word for word in (b"elif ", b"if ", b"while ", b"for ", b"async for ") if line.startswith(word.strip())
        )
        if isinstance(before, ast.For | ast.AsyncFor):
            opening += segment(self.old, before.target) + b" in "
        choice = [b"(", segment(self.new, new), b") if ", self.name, b" else (", segment(self.old, old), b")"]
        header = self._line(indent_of(self.old, before), opening, *choice)
        self._add(before.lineno - 1, end, Level.CONDITION, [header], "its condition differs")

    def _nest_else(self, before: ast.stmt, one: list[ast.stmt], other: list[ast.stmt]) -> None:
        """Guard a whole else part, an `elif` chain for example, below an `else:`."""
        start = one[0].lineno - 1 if is_elif(self.old, before) else else_line(self.old, one)
        indent = indent_of(self.old, before)
        inner = indent + UNIT
        require_whole_lines(self.old, one[-1:])
        old_lines = moved(self.old, one, inner + UNIT)
        added = [self._line(indent, b"else")]
        if other:
            require_whole_lines(self.new, other[-1:])
            new_lines = moved(self.new, other, inner + UNIT)
            added += [self._line(inner, b"if ", self.name), *new_lines, self._line(inner, b"else"), *old_lines]
        else:
            new_lines = []
            added += [self._line(inner, b"if not ", self.name), *old_lines]
        level = Level.ENCLOSING if repeated_lines(old_lines, new_lines) else Level.STATEMENT
        self._add(start, last_line(one[-1]), level, added, "its elif chain differs")

    def _guard(
        self,
        old: list[ast.stmt],
        place: range,
        after: list[ast.stmt],
        level: Level | None = None,
        reason: str = "",
    ) -> None:
        """Put a guard around statements of a list, and what stands there in the new variant."""
        before = old[place.start : place.stop]
        self._require_guardable(before, after)
        lowest = last_line(old[place.start - 1]) if place.start else None
        indent = indent_of(self.old, old[0]) if old else b""
        old_lines = moved(self.old, before, indent + UNIT, lowest) if before else []
        new_lines = self._new_lines(after, indent + UNIT) if after else []
        added = [self._line(indent, b"if ", self.name), *new_lines] if after else []
        if before:
            added += [self._line(indent, b"else") if after else self._line(indent, b"if not ", self.name), *old_lines]
            start = with_comments(self.old, before[0], lowest) if lowest is not None else first_line(before[0]) - 1
            end = last_line(before[-1])
        else:
            start = end = self._insertion(old, place.start)
        if level is None:
            level = Level.ENCLOSING if repeated_lines(old_lines, new_lines) else Level.STATEMENT
        self._add(start, end, level, added, reason or ("lines of one statement differ" if level > 1 else ""))

    def _new_lines(self, after: list[ast.stmt], indent: bytes) -> list[bytes]:
        """Return the new statements for a branch, with the comments above them that the base does not have."""
        first = first_line(after[0]) - 1
        lowest = first
        while lowest and self.new.lines[lowest - 1] not in self._old_lines:
            lowest -= 1
        return moved(self.new, after, indent, lowest)

    def _require_guardable(self, before: list[ast.stmt], after: list[ast.stmt]) -> None:
        for source, statements in ((self.old, before), (self.new, after)):
            if not statements:
                continue
            if source is self.new and any(id(one) in self.new.foreign for one in statements):
                raise PartialSourceError
            require_whole_lines(source, statements)
            for statement in statements:
                if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                    raise UnguardableError("a from __future__ import cannot be switched", statement.lineno)
            if declared := declares(statements):
                raise UnguardableError(f"it declares {declared}", statements[0].lineno)

    def _insertion(self, old: list[ast.stmt], place: int) -> int:
        """Return the 0-based line above which a statement is inserted into a list."""
        if not place:
            if old and not begins_line(self.old, old[0]):
                raise UnguardableError("shares a line with what stands before it", old[0].lineno)
            return first_line(old[0]) - 1 if old else len(self.old.lines)  # a file without code
        require_whole_lines(self.old, [old[place - 1]])
        return last_line(old[place - 1])

    def _line(self, indent: bytes, *parts: bytes) -> bytes:
        return b"".join([indent, *parts, b":", self.old.newline])

    def _add(self, start: int, end: int, level: Level, lines: list[bytes], reason: str = "") -> None:
        symbols = (self.name.decode().removeprefix("CONFIG_"),)
        single = tuple(b"".join(lines).splitlines(keepends=True))  # a condition may have several lines
        self.edits.append(GuardEdit(start=start, end=end, level=level, lines=single, reason=reason, symbols=symbols))


def _last_body(statement: ast.stmt) -> Sequence[ast.stmt]:
    """Return the last statement of a compound statement without an else part, as a list."""
    handlers = getattr(statement, "handlers", None)
    body: list[ast.stmt] = handlers[-1].body if handlers else statement.body  # type: ignore[attr-defined]
    return body[-1:]


def _header_reason(statement: ast.stmt) -> str:
    if isinstance(statement, FUNCTIONS):
        return "its signature or its decorators differ"
    return "its header differs"
