"""The text of statements on its way into a guard: which lines they own, and how these are indented anew."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator, Sequence

from patchkit.config.guard_source import Source, UnguardableError, first_line, last_line
from patchkit.pattern import compile_lazily

UNIT = b"    "
_REST_OF_LINE = compile_lazily(rb"[ \t\f]*(#.*)?\r?\n?")
_GOES_ON = compile_lazily(rb"[;:][ \t\f]*\\\r?\n\Z")
_END_OF_HEADER = compile_lazily(rb"[\s)]*(?:#[^\n]*\n[\s)]*)*:[ \t]*(#[^\n]*)?\r?\n")
_CODE = compile_lazily(rb"(?!\s*(?:else|try|finally)\s*:)[^#]*?[\w\x80-\xff]")
_ELSE = compile_lazily(rb"[ \t]*else[ \t]*:[ \t]*(#.*)?\r?\n?")


def indent_of(source: Source, statement: ast.stmt) -> bytes:
    """Return what stands before a statement on its line."""
    return source.lines[first_line(statement) - 1][: statement.col_offset]


def begins_line(source: Source, statement: ast.stmt) -> bool:
    """Tell whether nothing stands before a statement on its line, nor on one above it that goes on with a backslash."""
    above = first_line(statement) - 2
    joined = above >= 0 and _GOES_ON.search(source.lines[above])
    return not joined and not indent_of(source, statement).strip()


def require_whole_lines(source: Source, statements: Sequence[ast.stmt]) -> None:
    """Raise UnguardableError when another statement shares the first or the last line (`a; b`, `if x: y`)."""
    for statement in (statements[0], statements[-1]):
        if statement is statements[0] and not begins_line(source, statement):
            raise UnguardableError("shares a line with what stands before it", statement.lineno)
        rest = source.lines[last_line(statement) - 1][statement.end_col_offset or 0 :]
        if not _REST_OF_LINE.fullmatch(rest) and statement is statements[-1]:
            raise UnguardableError("shares a line with what follows it", last_line(statement))


def with_comments(source: Source, statement: ast.stmt, lowest: int) -> int:
    """Return the 0-based line on which a statement begins, with the comments right above it, not above `lowest`."""
    start = first_line(statement) - 1
    indent = indent_of(source, statement)
    while start > lowest:
        above = source.lines[start - 1]
        # The end of a string may look like a comment.
        if not above.startswith(indent + b"#") or b'"""' in above or b"'''" in above:
            break
        start -= 1
    return start


def moved(source: Source, statements: Sequence[ast.stmt], indent: bytes, lowest: int | None = None) -> list[bytes]:
    """Return the lines of neighbouring statements, indented anew; a leading `elif` becomes `if`.

    Lines that begin inside a string stay as they are. With `lowest` the comments above come too, as with_comments says.
    """
    first = first_line(statements[0]) - 1
    start = first if lowest is None else with_comments(source, statements[0], lowest)
    old = indent_of(source, statements[0])
    inside = {line for statement in statements for line in _lines_inside_strings(source, statement)}
    moved_lines = []
    for number in range(start, last_line(statements[-1])):
        line = source.lines[number]
        if number == first and line.startswith(old + b"elif") and isinstance(statements[0], ast.If):
            line = old + line[len(old) + 2 :]
        if number in inside or not line.strip():
            moved_lines.append(line)
        elif line.startswith(old):
            moved_lines.append(indent + line[len(old) :])
        else:  # a comment, or a line that goes on within brackets
            moved_lines.append(indent + line.lstrip(b" \t"))
    return moved_lines


def _lines_inside_strings(source: Source, statement: ast.stmt) -> Iterator[int]:
    """Yield the 0-based lines that begin inside a string."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.JoinedStr | ast.Constant) or not isinstance(
            getattr(node, "value", ""), str | bytes
        ):
            continue
        if node.end_lineno is not None and node.end_lineno > node.lineno:
            yield from _broken_strings(segment(source, node), node.lineno - 1)


def _broken_strings(text: bytes, line: int) -> Iterator[int]:
    """Tell strings of several lines from several strings, one a line; `line` is the 0-based first one."""
    try:
        tokens = list(tokenize.tokenize(iter((b"(" + text + b")").splitlines(keepends=True)).__next__))
    except (tokenize.TokenError, SyntaxError):
        tokens = []
    if not tokens:
        yield from range(line + 1, line + text.count(b"\n") + 1)
    opened: list[int] = []
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if kind == "STRING":
            yield from range(line + token.start[0], line + token.end[0])
        elif kind.endswith("STRING_START"):  # f-strings from Python 3.12 on, t-strings from 3.14 on
            opened.append(token.start[0])
        elif kind.endswith("STRING_END"):
            yield from range(line + opened.pop(), line + token.end[0])


def segment(source: Source, node: ast.expr) -> bytes:
    """Return the text of an expression, as it stands."""
    start, end = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    if start == end:
        return source.lines[start][node.col_offset : node.end_col_offset]
    between = source.lines[start + 1 : end]
    return b"".join([source.lines[start][node.col_offset :], *between, source.lines[end][: node.end_col_offset]])


def end_of_header(source: Source, last: ast.expr, body: Sequence[ast.stmt]) -> int:
    """Return the 1-based line that ends the header of a compound statement, whose `last` expression is given."""
    line = last.end_lineno or last.lineno
    stop = first_line(body[0]) - 1
    rest = b"".join([source.lines[line - 1][last.end_col_offset or 0 :], *source.lines[line:stop]])
    match = _END_OF_HEADER.match(rest)
    if match is None:
        raise UnguardableError("its body stands on the line of its header", line)
    return line - 1 + rest[: match.end()].count(b"\n")


def else_line(source: Source, body: Sequence[ast.stmt]) -> int:
    """Return the 0-based line of the `else:` above a statement list."""
    line = first_line(body[0]) - 2
    while line >= 0 and not _ELSE.fullmatch(source.lines[line]):
        if source.lines[line].strip() and not source.lines[line].lstrip().startswith(b"#"):
            raise UnguardableError("its else: does not stand alone on a line", line + 1)
        line -= 1
    return line


def is_elif(source: Source, statement: ast.stmt) -> bool:
    """Tell whether the else part of a statement is written `elif`."""
    if not isinstance(statement, ast.If) or len(statement.orelse) != 1:
        return False
    (inner,) = statement.orelse
    line = source.lines[inner.lineno - 1][inner.col_offset :]
    return isinstance(inner, ast.If) and line.startswith(b"elif")


def repeated_lines(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Return how many lines of code stand on both sides, in the same order; brackets alone are not code."""
    import difflib

    first, second = ([line.strip() for line in side if _is_code(line)] for side in (one, other))
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    return sum(match.size for match in matcher.get_matching_blocks())


def _is_code(line: bytes) -> bool:
    return bool(_CODE.match(line))
