"""kconfiglib's parser on files that are handed in: no shell, no environment, no disk; every line passes a check first.

kconfiglib runs `$(shell,...)`, expands environment variables, imports a module that the environment names, and opens
any file that `source` names. It ends at the first mistake; here a line that was found wrong can be passed over, so that
those behind it are found too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import kconfiglib as library

from patchkit.config.configuration import Value
from patchkit.config.decimals import EXAMPLE, Decimal, is_mark, parse_mark
from patchkit.config.dotconfig import LONGEST_NUMBER, ValueKind
from patchkit.config.fault import Fault, KconfigError, ProseError
from patchkit.config.kconfig_faults import cut_words, refused, translated
from patchkit.config.kconfig_words import CLOSING, ENTRIES, OPENING, PROPERTIES, REFUSED, WORDS, near_word, skeleton
from patchkit.config.release import is_version
from patchkit.errors import SeriesError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

GIVEN = "(patchkit)"
"""The file name of symbols that no Kconfig defines: the engine's, and gates that only patches name."""
ENGINES = ("VLLM", "SGLANG")
_MOST_FILES = 200
_LARGEST = 4 << 20  # characters of all Kconfig files together
_DEEPEST = 16
_MOST_PROSE = 500  # lines that begin with no word of Kconfig; to look for a word that is near takes 15 us


@dataclass(frozen=True, kw_only=True, slots=True)
class KconfigSource:
    """A Kconfig file (`name`, as messages shall call it) and what reads files below its directory.

    `read` takes a path relative to that directory and the `file:line` of the `source` that wants it; it raises
    PatchkitError for a file that is not to be had.
    """

    name: str
    read: Callable[[PurePosixPath, str], str]

    def name_of(self, path: PurePosixPath) -> str:
        """Return what messages call a file below the directory of the Kconfig."""
        return str(PurePosixPath(self.name).parent / path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What Kconfig files are read for: a release of an engine ("" for an unknown version), `gates` that patches name,
    and the values that a tree has of symbols which other series define.
    """

    engine: str
    version: str
    gates: Collection[str]
    standing: Sequence[Value]


_WORD = compile_lazily(r"\s*([A-Za-z0-9_-]+)")
_NAME = compile_lazily(r"[A-Za-z0-9_]*[A-Za-z_][A-Za-z0-9_]*")
_VERSION_TERM = compile_lazily(
    r'\b(?:VLLM|SGLANG)_VERSION\s*(?:[<>]=?|!?=)\s*(["\']?)([^\s"\'&|()]+)\1'
    # From the start of a word alone: from each of its letters a long one would be read again.
    r'|(?<![^\s"\'&|()!])(["\']?)([^\s"\'&|()!]+)\3\s*(?:[<>]=?|!?=)\s*(?:VLLM|SGLANG)_VERSION\b'
)
_NUMBER = compile_lazily(r"[-+]?(?:[0-9]+|0[xX][0-9a-fA-F]+)")


class _Text:
    """Lines from memory, with what kconfiglib wants of an open file."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def readline(self) -> str:
        return next(self._lines, "")

    def close(self) -> None:
        pass


class KconfigParser(library.Kconfig):  # type: ignore[misc]
    """kconfiglib's parser; every line outside help texts passes `_tokenize`."""

    def __init__(
        self,
        sources: Sequence[KconfigSource],
        ground: Ground,
        passed: Mapping[str, int],
    ) -> None:
        self._sources = sources
        self._ground = ground
        self._passed = passed
        self.standing: set[str] = set()
        self._places: list[tuple[int, PurePosixPath]] = []
        self._blocks: list[list[tuple[str, str]]] = [[]]
        self._size = 0
        self.filename: str | None = GIVEN
        self.linenr = 0
        self._readline: Callable[[], str] = str
        self.homes: dict[str, int] = {}
        self.named: list[tuple[Any, str]] = []
        self.terms: list[Fault] = []
        self.decimals: dict[Any, tuple[Decimal, str]] = {}
        self.numbers: list[tuple[Any, str, str, list[Any]]] = []
        self.is_whole = True
        self.doubtful: set[str] = set()
        self._latest: Any = None
        self._unknown: tuple[str | None, int] = ("", 0)
        self._prose = 0
        try:
            super().__init__(GIVEN, warn=True, warn_to_stderr=False)
        except library.KconfigError as error:
            raise self._told(str(error)) from error
        except RecursionError as error:
            raise self._wrong("nested too deeply", "blocks or expressions, hundreds deep") from error
        except (AttributeError, TypeError, IndexError, KeyError, ValueError) as error:
            # kconfiglib takes a property on its word where it has none to keep: `visible if` below a symbol.
            raise self._wrong("what stands here has no meaning here", f"kconfiglib: {error}") from error

    @property
    def _here(self) -> str:
        return f"{self.filename}:{self.linenr}"

    def _wrong(self, what: str, why: str) -> SeriesError:
        """Return the error for a line while it is read, for the files when they have been."""
        if self.filename is None:
            return SeriesError(f"{self._sources[0].name}: {what}", why=why)
        return KconfigError([Fault(place=self._here, what=what, why=why)])

    def _told(self, text: str) -> SeriesError:
        """Return the error for what kconfiglib says: with a place while it reads."""
        here = f"{self._here}: "
        if self.filename is None or not text.startswith(here):
            return translated(text)
        what, _, why = cut_words(text.removeprefix(here).removeprefix("error: ")).partition("\n")
        return self._wrong(what, why)

    def _open(self, filename: str, mode: str) -> _Text:
        del filename, mode  # the only one that is asked for by name is the first
        return _Text(self._first_lines())

    def _first_lines(self) -> Iterator[str]:
        version = self._ground.version
        for name in ENGINES:
            own = name.lower() == self._ground.engine
            yield from (f"config {name}\n", f"\tdef_bool {'y' if own else 'n'}\n")
            yield from (f"config {name}_VERSION\n", "\tstring\n", f'\tdefault "{version if own else ""}"\n')
        for number in range(len(self._sources)):
            yield f'source "{number}"\n'
        for gate in sorted(self._ground.gates):
            if gate not in self.syms or not self.syms[gate].nodes:
                yield from (f"config {gate}\n", f'\tbool "{gate}"\n')
        for value in self._ground.standing:
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
            if self._blocks[-1]:
                word, place = self._blocks[-1][-1]
                what = f"`{word}` is not closed in this file"
                raise KconfigError([Fault(place=place, what=what, why=f"write `end{word}` where it ends")])
            self._blocks.pop()
            self._places.pop()
            self._latest = None
            self._leave_file()
        return True

    def _tokenize(self, s: str) -> Any:
        here = f"{self.filename}:{self.linenr}"
        if here in self._passed:
            s = self._pass(s, self._passed[here])
        if "$" in s and not s.lstrip().startswith("#"):
            raise refused(here, s, "`$` begins a macro, which is refused", "macros run commands, read the environment")
        match = _WORD.match(s)
        if match is None:
            if is_mark(s):
                self._mark(s, here)
            return super()._tokenize(s)
        word = match[1]
        if word in REFUSED:
            raise refused(here, s, f"`{word}` is refused", REFUSED[word])
        tokens = super()._tokenize(s)
        if word in ("source", "rsource"):
            if len(tokens) != 3 or not isinstance(tokens[1], str):  # noqa: PLR2004 -- the word, the name, the end
                raise refused(here, s, f"`{word}` takes one file name", f'as in: {word} "Kconfig.attention"')
            self._enter(tokens[1], here, s, from_file=word == "rsource")
            # A line that ends the properties of the symbol above and changes nothing.
            return [*super()._tokenize('mainmenu "-"')[:1], self.top_node.prompt[0], None]
        self._remember(word, tokens, here, s)
        return tokens

    def _pass(self, line: str, times: int) -> str:
        """Return what stands for a line that was found wrong: what those behind it need, the second time nothing."""
        if self._latest is not None:
            self.doubtful.add(self._latest.name)
        self._unknown = (self.filename, self.linenr)
        match = _WORD.match(line)
        word = match[1] if match is not None else ""
        word = word if word in WORDS else near_word(word)
        self.is_whole = self.is_whole and word in PROPERTIES
        name = f"UNREAD_{self.linenr}"
        self.doubtful.add(name)
        return f"{skeleton(word, name) if times == 1 else ''}\n"

    def _remember(self, word: str, tokens: Any, here: str, line: str) -> None:
        """Note which symbols a line names, and how deep blocks are nested in its file."""
        if word in OPENING or word in CLOSING:
            self._open_or_close(word, here, line)
        symbols = [token for token in tokens if isinstance(token, library.Symbol)]
        if word in ("config", "menuconfig"):
            self._check_name(symbols, here, line)
            self._latest = symbols[0] if symbols else None
            return
        if word in ENTRIES:
            self._latest = None
        if symbols:
            self._check_terms(symbols, here, line)
        self.named += [(symbol, here) for symbol in symbols if not symbol.is_constant]
        if self._latest is not None and word in ("default", "range", "def_int", "def_hex"):
            self.numbers.append((self._latest, here, word, symbols))

    def _open_or_close(self, word: str, here: str, line: str) -> None:
        if word in OPENING:
            self._blocks[-1].append((word, here))
            return
        if not self._blocks[-1]:
            raise refused(here, line, f"`{word}` closes nothing in this file", "")
        opening, place = self._blocks[-1].pop()
        if word != f"end{opening}":
            raise refused(here, line, f"`{word}` stands before `end{opening}`", f"{place}: `{opening}` is open")

    def _check_terms(self, symbols: list[Any], here: str, line: str) -> None:
        if self.m in symbols:
            raise refused(here, line, "`m` is refused", "there are no modules here: y or n")
        for symbol in symbols:
            name = symbol.name
            if len(name) > LONGEST_NUMBER and not symbol.is_constant and _NUMBER.fullmatch(name):
                why = f"expected at most {LONGEST_NUMBER} characters, found {len(name):,}; a text stands in quotes"
                raise refused(here, line, "the number is too long", why)
        for found in _VERSION_TERM.finditer(line.partition("#")[0]):
            written = found[2] or found[4]
            if not is_version(written):
                why = "the other side is a version, as in: VLLM_VERSION >= 0.8.0"
                self.terms.append(
                    Fault(place=here, what=cut_words(f"`{found[0].strip()}`: {written} is not a version"), why=why)
                )

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
        sources = self._sources
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
        name = sources[number].name_of(path)
        if len(self._places) >= _DEEPEST or len(self.kconfig_filenames) > _MOST_FILES:
            raise refused(here, line, "too many Kconfig files", f"{_DEEPEST} deep, {_MOST_FILES} in all are read")
        content = self._read(number, path, here if self._places else name)
        self._size += len(content)
        if self._size > _LARGEST:
            raise refused(here, line, f"more than {_LARGEST >> 20} MiB of Kconfig", "")
        before, nul, _ = content.partition("\0")
        if nul:
            number = before.count("\n") + 1
            raise KconfigError([Fault(place=f"{name}:{number}", what="a NUL byte", why="a Kconfig is text")])
        self.kconfig_filenames.append(name)
        self._filestack.append((self._include_path, self._readline))
        self._include_path += ((self.filename, self.linenr),)
        self._readline = _Text(f"{one}\n" for one in content.replace("\r\n", "\n").split("\n")).readline
        self.homes[name] = number
        self.filename, self.linenr, self._latest = name, 0, None
        self._places.append((number, path))
        self._blocks.append([])

    def _read(self, number: int, path: PurePosixPath, here: str) -> str:
        try:
            return self._sources[number].read(path, here)
        except SeriesError as error:
            what = error.what.removeprefix(f"{here}: ")
            raise KconfigError([Fault(place=here, what=what, why=error.why)], hint=error.hint) from error

    def _parse_assignment(self, s: str) -> None:
        """Refuse what kconfiglib takes for the assignment of a variable: mostly it is a misspelt word.

        Of lines of prose, a help text without its `help`, the first is refused.
        """
        here = self._here
        self._prose += 1
        if self._prose > _MOST_PROSE:
            what = f"more than {_MOST_PROSE} lines are no Kconfig"
            raise ProseError([Fault(place=here, what=what, why="is this the right file?")])
        word = s.split(maxsplit=1)[0]
        near = near_word(word)
        if self._unknown == (self.filename, self.linenr - 1) and not near:
            self._unknown = (self.filename, self.linenr)
            return
        if re.match(r"\s*\S+\s*[:+]?=", s):
            raise refused(here, s, "variables are refused", "a symbol's value is written with `default`")
        why = f"did you mean `{near}`?" if near else "a help text is indented more than the word `help`"
        raise refused(here, s, f"`{word}` is no word of Kconfig", why)


def _written(value: Value) -> str:
    """Return a value as a Kconfig writes it. `$` would begin a macro, and no expression can name such a text.

    U+FE69, a small dollar sign, takes its place.
    """
    escaped = value.text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\ufe69")
    return f'"{escaped}"' if value.kind is ValueKind.STRING else value.text
