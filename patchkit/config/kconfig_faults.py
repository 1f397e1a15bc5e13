"""What is wrong with Kconfig files, in our words: what kconfiglib says, and what it keeps to itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import kconfiglib as library

from patchkit.config.dotconfig import LONGEST_NUMBER
from patchkit.config.fault import UNDEFINED, Fault, KconfigError
from patchkit.errors import SeriesError
from patchkit.pattern import compile_lazily

_MOST_COMPARED = 200_000  # names, in search of one that is meant: beyond, a fault goes without the hint
_ERROR = compile_lazily(r"(?:(?P<place>\S+:[0-9]+): )?(?:error: )?(?P<what>.*)", re.DOTALL)
_LOCATED = compile_lazily(r"\(defined at ([^),]+)")
_MEMBER = compile_lazily(
    r"^(?:\.\.\.depends on )?(?:the choice symbol )?(\S+) \(defined at ([^)]+)\), with definition\.\.\.$", re.MULTILINE
)
_UNKNOWN = "it would always be n; a text stands in quotes; if another series has it, name that too"
_LONG_WORD = compile_lazily(r"\w{256,}")  # longer than the name of any file
_SHOWN = 32
BASES = {library.INT: 10, library.HEX: 16}
_HARMLESS = ("style: ", "empty help text", "has no prompt")


def translated(text: str) -> SeriesError:
    """Turn kconfiglib's message into ours; its dump of a dependency loop becomes the names and their places."""
    members = _MEMBER.findall(text) if "Dependency loop" in text else []
    if members:
        chain = " -> ".join(f"{name}" for name, _ in (*members, members[0]))
        places = "\n".join(f"{place}: {name}" for name, place in members)
        return SeriesError(
            f"{members[0][1]}: recursive dependency: {chain}",
            why=f"each decides the one behind the arrow\n{places}",
            hint="drop one of these `depends on`, `select` or `default ... if`",
        )
    match = _ERROR.match(cut_words(text.strip()))
    place, what = (match["place"], match["what"]) if match else (None, text)
    first, _, rest = what.partition("\n")
    return SeriesError(f"{place}: {first}" if place else first, why=rest)


def cut_words(text: str) -> str:
    """Return a text with numbers and names cut that are too long to be looked at."""
    return _LONG_WORD.sub(lambda word: f"{word[0][:_SHOWN]}... ({len(word[0]):,} characters)", text)


def refused(here: str, line: str, what: str, why: str) -> KconfigError:
    """Return the error for a line that is not read, which it shows."""
    number = here.rpartition(":")[2]
    shown = line.strip().encode("unicode_escape").decode("ascii")[:120]
    why = "\n".join(part for part in (f"  {number} | {shown}", why) if part)
    return KconfigError([Fault(place=here, what=what, why=why)])


def defined_twice(kconf: Any) -> Iterator[Fault]:
    """Yield symbols that two Kconfig files define, neither of which sources the other."""
    for symbol in kconf.unique_defined_syms:
        by_home = {kconf.homes[node.filename]: node for node in symbol.nodes if node.filename in kconf.homes}
        if len(by_home) > 1:
            first, *others = [f"{node.filename}:{node.linenr}" for node in by_home.values()]
            why = "rename the one that is yours: a value would switch both"
            yield Fault(place=others[0], what=f"{symbol.name} is defined by another Kconfig too: {first}", why=why)


def undefined(kconf: Any) -> Iterator[Fault]:
    """Yield symbols in expressions that nobody defines: kconfiglib takes them for n, in silence."""
    from difflib import get_close_matches

    defined = [symbol.name for symbol in kconf.unique_defined_syms]
    for number, (symbol, place) in enumerate(kconf.named):
        if not symbol.nodes and not symbol.name[0].isdigit() and not symbol.name.startswith(("-", ".")):
            near = get_close_matches(symbol.name, defined if number * len(defined) < _MOST_COMPARED else (), 1)
            why = f"did you mean {near[0]}?" if near else _UNKNOWN
            yield Fault(place=place, what=f"{symbol.name} {UNDEFINED}", why=why)


def wrong_decimals(kconf: Any) -> Iterator[Fault]:
    """Yield symbols that a comment calls decimal numbers, and that are none."""
    for symbol, (decimal, place) in kconf.decimals.items():
        if symbol.orig_type != library.STRING:
            what = f"{symbol.name} is no string, and a comment for patchkit calls it a decimal number"
            yield Fault(place=place, what=what, why="a whole number has `range`")
            continue
        written = (value.name for value, _ in symbol.defaults if value.is_constant)
        for text in written:
            if not decimal.takes(text):
                yield Fault(place=place, what=f"{symbol.name}: its default {text!r} is not {decimal.words}", why="")


def wrong_numbers(kconf: Any) -> Iterator[Fault]:
    """Yield numbers of symbols that are too long, and ranges of numbers in which none lies."""
    for symbol, place, word, values in kconf.numbers:
        base = BASES.get(symbol.orig_type)
        if base is None:
            continue
        texts = [value.name for value in values if value.is_constant or not value.nodes]
        long = too_long(values)
        if long:
            why = f"expected at most {LONGEST_NUMBER} characters, found {len(long):,}"
            yield Fault(place=place, what=f"{symbol.name}: the number is too long", why=why)
        elif word == "range" and texts[:2] == [value.name for value in values[:2]]:
            low, high = (number_of(text, base) for text in texts[:2])
            if low is not None and high is not None and low > high:
                yield empty_range(place, symbol.name, *texts[:2])


def too_long(values: Iterable[Any]) -> str:
    """Return the first number among the symbols of a line that is longer than any symbol takes, "" for none."""
    return next((str(one.name) for one in values if not one.nodes and len(one.name) > LONGEST_NUMBER), "")


def number_of(text: str, base: int) -> int | None:
    """Return a number as kconfiglib reads it; None for what is none, or too long to be one."""
    try:
        return int(text, base) if len(text) <= LONGEST_NUMBER else None
    except ValueError:
        return None


def empty_range(place: str, name: str, low: str, high: str) -> Fault:
    """Return the fault of a range that no number is in."""
    return Fault(place=place, what=f"{name}: its range is empty", why=f"it begins at {low}, and ends at {high}")


def warned(warnings: Sequence[str]) -> Iterator[Fault]:
    """Yield what kconfiglib warns of, but for matters of style."""
    return (_fault(text) for text in warnings if not any(part in text for part in _HARMLESS))


def _fault(text: str) -> Fault:
    place, _, what = text.rpartition("warning: ")
    found = _LOCATED.search(what)
    return Fault(place=place.rstrip(": ") or (found[1] if found else "Kconfig"), what=" ".join(what.split()), why="")
