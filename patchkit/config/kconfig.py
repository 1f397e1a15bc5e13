"""Kconfig files read by kconfiglib, from what is handed in and from nothing else: no shell, no environment, no disk.

kconfiglib runs `$(shell,...)`, expands environment variables, imports a module that the environment names, and opens
any file that `source` names. Here every line passes a check first, and files come from a reader. The module imports
kconfiglib, which costs 20 ms and more: import it where it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NoReturn

import kconfiglib as library

from patchkit.config.configuration import Fault, Value
from patchkit.config.decimals import EXAMPLE, Decimal, is_mark, parse_mark
from patchkit.config.dotconfig import ValueKind
from patchkit.config.kconfig_faults import (
    defined_twice,
    near_words,
    refused,
    translated,
    undefined,
    warned,
    wrong_decimals,
)
from patchkit.config.release import Release, is_version
from patchkit.errors import SeriesError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

GIVEN = "(patchkit)"
"""The file name of symbols that no Kconfig defines: the engine's, and gates that only patches name."""
MOST_FILES = 200
LARGEST = 4 << 20
"""The longest that all Kconfig files may be together, in characters."""
_DEEPEST = 16
ENGINES = ("VLLM", "SGLANG")


@dataclass(frozen=True, kw_only=True, slots=True)
class KconfigSource:
    """A Kconfig file (`name`, as messages shall call it) and what reads files below its directory.

    `read` takes a path relative to that directory and the `file:line` of the `source` that wants it; it raises
    PatchkitError for a file that is not to be had.
    """

    name: str
    read: Callable[[PurePosixPath, str], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Menu:
    """Kconfig files as kconfiglib holds them. `kconf` is its object; `faults` are mistakes that let it evaluate.

    `given` are the symbols that patchkit defines itself; who asks for a value of them is told so. `standing` are those
    of them that a series defines which is on the tree and was not named: they keep the value that they have there.
    `decimals` are strings of which a comment says that they are decimal numbers.
    """

    kconf: Any
    faults: tuple[Fault, ...]
    given: frozenset[str]
    standing: frozenset[str] = frozenset()
    decimals: Mapping[str, Decimal] = MappingProxyType({})


_WORD = compile_lazily(r"\s*([A-Za-z0-9_-]+)")
_NAME = compile_lazily(r"[A-Za-z0-9_]*[A-Za-z_][A-Za-z0-9_]*")
_VERSION_TERM = compile_lazily(
    r'\b(?:VLLM|SGLANG)_VERSION\s*(?:[<>]=?|!?=)\s*(["\']?)([^\s"\'&|()]+)\1'
    # From the start of a word alone: from each of its letters a long one would be read again.
    r'|(?<![^\s"\'&|()!])(["\']?)([^\s"\'&|()!]+)\3\s*(?:[<>]=?|!?=)\s*(?:VLLM|SGLANG)_VERSION\b'
)
_REFUSED = {
    "tristate": "`m` means nothing here: write `bool`",
    "def_tristate": "`m` means nothing here: write `def_bool`",
    "imply": "it would be dropped in silence where dependencies are not met: use `select`, or `default y if`",
    "option": "its values come from the environment: write `default`",
    "osource": "a file that may be missing makes two configurations of one: use `source`",
    "orsource": "a file that may be missing makes two configurations of one: use `rsource`",
    "gsource": "name the file with `source`",
    "grsource": "name the file with `rsource`",
}
_OPENING = frozenset({"if", "menu", "choice"})
_CLOSING = frozenset({"endif", "endmenu", "endchoice"})
_ENTRIES = _OPENING | _CLOSING | {"comment", "source", "rsource", "mainmenu"}


def load_kconfig(
    sources: Sequence[KconfigSource],
    *,
    engine: str,
    version: str,
    gates: Collection[str] = (),
    standing: Sequence[Value] = (),
) -> Menu:
    """Read Kconfig files together, for one release of an engine ("" for an unknown version).

    `gates` are symbols that patches name: a bool is made of each that no Kconfig defines. `standing` are values that a
    tree has: they hold where an expression names such a symbol and no Kconfig here defines it. Raises SeriesError for
    what cannot be read at all: syntax, recursion, words that are refused. Other mistakes are the menu's faults.
    """
    with _alone():
        try:
            kconf = _Parser(sources, engine, version if is_version(version) else "", gates, standing)
        except library.KconfigError as error:
            raise translated(str(error)) from error
        except RecursionError as error:
            raise SeriesError(
                f"{sources[0].name}: nested too deeply", why="blocks or expressions, hundreds deep"
            ) from error
    for name in ENGINES:
        _make_release(kconf.syms[f"{name}_VERSION"])
        _leave_out(kconf.syms[name], kconf.syms[f"{name}_VERSION"])
    _leave_out(*(kconf.syms[name] for name in kconf.standing))
    faults = (*defined_twice(kconf), *undefined(kconf), *wrong_decimals(kconf), *kconf.terms, *warned(kconf.warnings))
    kconf.warn = False
    given = frozenset(f"{name}{part}" for name in ENGINES for part in ("", "_VERSION"))
    others = frozenset(kconf.standing)
    decimals = {symbol.name: decimal for symbol, (decimal, _) in kconf.decimals.items()}
    return Menu(kconf=kconf, faults=faults, given=given | others, standing=others, decimals=decimals)


class _Text:
    """Lines from memory, with what kconfiglib wants of an open file."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def readline(self) -> str:
        return next(self._lines, "")

    def close(self) -> None:
        pass


class _Parser(library.Kconfig):  # type: ignore[misc]
    """kconfiglib's parser; every line outside help texts passes `_tokenize`."""

    def __init__(
        self,
        sources: Sequence[KconfigSource],
        engine: str,
        version: str,
        gates: Collection[str],
        standing: Sequence[Value],
    ) -> None:
        self._given = (sources, engine, version, sorted(gates))
        self._values = standing
        self.standing: set[str] = set()
        self._places: list[tuple[int, PurePosixPath]] = []
        self._depths = [0]
        self._size = 0
        self.filename, self.linenr = GIVEN, 0
        self._readline: Callable[[], str] = str
        self.homes: dict[str, int] = {}
        self.named: list[tuple[Any, str]] = []
        self.terms: list[Fault] = []
        self.decimals: dict[Any, tuple[Decimal, str]] = {}
        self._latest: Any = None
        try:
            super().__init__(GIVEN, warn=True, warn_to_stderr=False)
        except (AttributeError, TypeError, IndexError, KeyError, ValueError) as error:
            # kconfiglib takes a property on its word where it has none to keep: `visible if` below a symbol.
            place = f"{self.filename}:{self.linenr}"
            raise SeriesError(f"{place}: what stands here has no meaning here", why=f"kconfiglib: {error}") from error

    def _open(self, filename: str, mode: str) -> _Text:
        del filename, mode  # the only one that is asked for by name is the first
        return _Text(self._first_lines())

    def _first_lines(self) -> Iterator[str]:
        sources, engine, version, gates = self._given
        for name in ENGINES:
            own = name.lower() == engine
            yield from (f"config {name}\n", f"\tdef_bool {'y' if own else 'n'}\n")
            yield from (f"config {name}_VERSION\n", "\tstring\n", f'\tdefault "{version if own else ""}"\n')
        for number in range(len(sources)):
            yield f'source "{number}"\n'
        for gate in gates:
            if gate not in self.syms or not self.syms[gate].nodes:
                yield from (f"config {gate}\n", f'\tbool "{gate}"\n')
        for value in self._values:
            referred = self.syms.get(value.symbol)
            if referred is not None and not referred.nodes:
                self.standing.add(value.symbol)
                yield from (f"config {value.symbol}\n", f"\t{value.kind.value}\n")
                if value.text:
                    yield f"\tdefault {_written(value)}\n"

    def _next_line(self) -> bool:
        while not super()._next_line():
            if not self._filestack:
                return False
            if self._depths.pop():
                raise SeriesError(f"{self.filename}: a menu, choice or if is not closed in this file")
            self._places.pop()
            self._latest = None
            self._leave_file()
        return True

    def _tokenize(self, s: str) -> Any:
        here = f"{self.filename}:{self.linenr}"
        if "$" in s and not s.lstrip().startswith("#"):
            raise refused(here, s, "`$` begins a macro, which is refused", "macros run commands, read the environment")
        match = _WORD.match(s)
        if match is None:
            if is_mark(s):
                self._mark(s, here)
            return super()._tokenize(s)
        word = match[1]
        if word in _REFUSED:
            raise refused(here, s, f"`{word}` is refused", _REFUSED[word])
        tokens = super()._tokenize(s)
        if word in ("source", "rsource"):
            if len(tokens) != 3 or not isinstance(tokens[1], str):  # noqa: PLR2004 -- the word, the name, the end
                raise refused(here, s, f"`{word}` takes one file name", f'as in: {word} "Kconfig.attention"')
            self._enter(tokens[1], here, s, from_file=word == "rsource")
            # A line that ends the properties of the symbol above and changes nothing.
            return [*super()._tokenize('mainmenu "-"')[:1], self.top_node.prompt[0], None]
        self._remember(word, tokens, here, s)
        return tokens

    def _remember(self, word: str, tokens: Any, here: str, line: str) -> None:
        """Note which symbols a line names, and how deep blocks are nested in its file."""
        self._depths[-1] += (word in _OPENING) - (word in _CLOSING)
        if self._depths[-1] < 0:
            raise refused(here, line, f"`{word}` closes nothing in this file", "")
        symbols = [token for token in tokens if isinstance(token, library.Symbol)]
        if word in ("config", "menuconfig"):
            self._check_name(symbols, here, line)
            self._latest = symbols[0] if symbols else None
            return
        if word in _ENTRIES:
            self._latest = None
        if self.m in symbols:
            raise refused(here, line, "`m` is refused", "there are no modules here: y or n")
        self.named += [(symbol, here) for symbol in symbols if not symbol.is_constant]
        for found in _VERSION_TERM.finditer(line.partition("#")[0]):
            written = found[2] or found[4]
            if not is_version(written):
                why = "the other side is a version, as in: VLLM_VERSION >= 0.8.0"
                self.terms.append(Fault(place=here, what=f"`{found[0].strip()}`: {written} is not a version", why=why))

    def _mark(self, line: str, here: str) -> None:
        """Note what a comment asks of the symbol that it stands below."""
        decimal = parse_mark(line)
        if decimal is None:
            raise refused(here, line, "the comment for patchkit is not understood", f"as in: {EXAMPLE}")
        if self._latest is None or self._latest in self.decimals or not line[:1].isspace():
            why = "one for a symbol, indented below its `config`, before `help`"
            raise refused(here, line, "the comment for patchkit belongs to no symbol", why)
        self.decimals[self._latest] = (decimal, here)

    def _check_name(self, symbols: list[Any], here: str, line: str) -> None:
        if self.filename == GIVEN or not symbols:
            return
        name = symbols[0].name
        if not _NAME.fullmatch(name):
            raise refused(here, line, f"{name!r} cannot be a symbol", "letters, digits and _, and not only digits")
        if symbols[0].nodes and symbols[0].nodes[0].filename == GIVEN:
            raise refused(here, line, f"{name} is given by patchkit", "it says which engine and release this is for")

    def _enter(self, text: str, here: str, line: str, *, from_file: bool) -> None:
        """Go on reading in another file."""
        sources = self._given[0]
        if not self._places:
            number, path = int(text), PurePosixPath(PurePosixPath(sources[int(text)].name).name)
        else:
            number, above = self._places[-1]
            path = (above.parent if from_file else PurePosixPath()) / text
            if PurePosixPath(text).is_absolute() or ".." in path.parts or any(c in text for c in "*?[\0"):
                raise refused(here, line, "`source` stays below the directory of the Kconfig", "a plain, relative name")
            if (number, path) in self._places:
                chain = " -> ".join(str(one) for _, one in (*self._places, (number, path)))
                raise refused(here, line, f"{path} sources itself", chain)
        name = str(PurePosixPath(sources[number].name).parent / path)
        if len(self._places) >= _DEEPEST or len(self.kconfig_filenames) > MOST_FILES:
            raise refused(here, line, "too many Kconfig files", f"{_DEEPEST} deep, {MOST_FILES} in all are read")
        content = sources[number].read(path, here)
        self._size += len(content)
        if self._size > LARGEST:
            raise refused(here, line, f"more than {LARGEST >> 20} MiB of Kconfig", "")
        before, nul, _ = content.partition("\0")
        if nul:
            number = before.count("\n") + 1
            raise SeriesError(f"{name}:{number}: a NUL byte", why="a Kconfig is text")
        self.kconfig_filenames.append(name)
        self._filestack.append((self._include_path, self._readline))
        self._include_path += ((self.filename, self.linenr),)
        self._readline = _Text(f"{one}\n" for one in content.replace("\r\n", "\n").split("\n")).readline
        self.homes[name] = number
        self.filename, self.linenr, self._latest = name, 0, None
        self._places.append((number, path))
        self._depths.append(0)

    def _parse_assignment(self, s: str) -> NoReturn:
        """Refuse what kconfiglib takes for the assignment of a variable: mostly it is a misspelt word."""
        here = f"{self.filename}:{self.linenr}"
        word = s.split(maxsplit=1)[0]
        if re.match(r"\s*\S+\s*[:+]?=", s):
            raise refused(here, s, "variables are refused", "a symbol's value is written with `default`")
        raise refused(here, s, f"`{word}` is no word of Kconfig", near_words(word))


def _written(value: Value) -> str:
    """Return a value as a Kconfig writes it. `$` would begin a macro, and no expression can name such a text."""
    escaped = value.text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\N{SMALL DOLLAR SIGN}")
    return f'"{escaped}"' if value.kind is ValueKind.STRING else value.text


@contextmanager
def _alone() -> Iterator[None]:
    """While it lasts, kconfiglib sees no environment and finds no module of functions to import."""

    def nothing(*_: object) -> NoReturn:
        raise ImportError

    kept = library.os, library.importlib
    library.os = SimpleNamespace(getenv=lambda _, otherwise=None: otherwise, environ={}, sep="/")
    library.importlib = SimpleNamespace(import_module=nothing)
    try:
        yield
    finally:
        library.os, library.importlib = kept


def _make_release(symbol: Any) -> None:
    """Make the value of a version symbol one that compares as a version; see Release."""
    constant = symbol.defaults[0][0]
    value = library.Symbol()
    value.kconfig, value.is_constant, value.orig_type = constant.kconfig, True, library.UNKNOWN
    value.name = Release(constant.name)
    value.rev_dep = value.weak_rev_dep = value.direct_dep = constant.kconfig.n
    symbol.defaults = [(value, symbol.defaults[0][1])]


def _leave_out(*symbols: Any) -> None:
    """Keep symbols out of .config files. Nothing they depend on changes, so that their values are computed once."""
    for symbol in symbols:
        symbol.str_value  # noqa: B018 -- a property that computes and sets the flag
        symbol._write_to_conf = False  # noqa: SLF001
