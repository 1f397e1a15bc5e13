"""Kconfig files read together for one release: the symbols as kconfiglib holds them, and every mistake that is found.

The module imports kconfiglib, which costs 20 ms and more: import it where it is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NoReturn

import kconfiglib as library

from patchkit.config.configuration import Value
from patchkit.config.decimals import Decimal
from patchkit.config.fault import Fault, KconfigError, ProseError, by_place
from patchkit.config.kconfig_faults import (
    defined_twice,
    too_long,
    undefined,
    warned,
    wrong_decimals,
    wrong_numbers,
)
from patchkit.config.kconfig_parser import ENGINES, Ground, KconfigParser, KconfigSource
from patchkit.config.release import Release, is_version
from patchkit.errors import SeriesError
from patchkit.record import dataclass

_MOST_UNREAD = 50
_MOST_REREAD = 2 << 20  # characters that are read once more to find what is behind a line that is wrong


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
    what cannot be read at all: syntax, recursion, words that are refused; KconfigError, with all of them, where they
    have lines. Other mistakes are the menu's faults.
    """
    ground = Ground(engine=engine, version=version if is_version(version) else "", gates=gates, standing=standing)
    kconf, unread = _parse(sources, ground)
    for name in ENGINES:
        _make_release(kconf.syms[f"{name}_VERSION"])
        _leave_out(kconf.syms[name], kconf.syms[f"{name}_VERSION"])
    _leave_out(*(kconf.syms[name] for name in kconf.standing))
    if unread:
        raise KconfigError([*unread, *_faults(kconf)])
    faults = tuple(_faults(kconf))
    kconf.warn = False
    given = frozenset(f"{name}{part}" for name in ENGINES for part in ("", "_VERSION"))
    others = frozenset(kconf.standing)
    decimals = {symbol.name: decimal for symbol, (decimal, _) in kconf.decimals.items()}
    return Menu(kconf=kconf, faults=faults, given=given | others, standing=others, decimals=decimals)


def _parse(sources: Sequence[KconfigSource], ground: Ground) -> tuple[KconfigParser, list[Fault]]:
    """Read files and return what is wrong with their lines: such a line is passed over, and all is read once more."""
    texts: dict[tuple[int, PurePosixPath], str] = {}
    kept = [_kept(source, number, texts) for number, source in enumerate(sources)]
    passed: dict[str, int] = {}
    unread: dict[str, Fault] = {}
    reread = 0
    with _alone():
        while True:
            try:
                return KconfigParser(kept, ground, passed), list(unread.values())
            except KconfigError as error:
                (fault,) = error.faults
                unread.setdefault(fault.place, fault)
                passed[fault.place] = passed.get(fault.place, 0) + 1
                reread += sum(map(len, texts.values()))
                many = len(unread) > _MOST_UNREAD or reread > _MOST_REREAD or isinstance(error, ProseError)
                if many or passed[fault.place] > 2:  # noqa: PLR2004
                    end = _end(fault, {sources[number].name_of(path): text for (number, path), text in texts.items()})
                    raise KconfigError([*unread.values()], hint=error.hint, unread=end) from error
            except SeriesError as error:
                if not unread:
                    raise
                place, _, what = error.what.partition(": ")
                raise KconfigError([*unread.values(), Fault(place=place, what=what, why=error.why)]) from error


def _end(fault: Fault, texts: Mapping[str, str]) -> str:
    """Say how much of a file was not looked at, where reading ended at a fault in it."""
    name, line = by_place(fault)
    left = texts.get(name, "").rstrip("\n").count("\n") + 1 - line
    behind = f"{left:,} lines behind it were not looked at, " if line and left > 0 else ""
    return f"reading ended at {fault.place}: {behind}there may be more"


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


def _kept(source: KconfigSource, number: int, texts: dict[tuple[int, PurePosixPath], str]) -> KconfigSource:
    """Return a source that reads each of its files once."""

    def read(path: PurePosixPath, place: str) -> str:
        key = (number, path)
        if key not in texts:
            texts[key] = source.read(path, place)
        return texts[key]

    return KconfigSource(name=source.name, read=read)


def _faults(kconf: KconfigParser) -> Iterator[Fault]:
    """Yield mistakes that let the files evaluate, without those that a line which was passed over may have made."""
    yield from defined_twice(kconf)
    yield from undefined(kconf) if kconf.is_whole else ()
    yield from wrong_decimals(kconf)
    yield from wrong_numbers(kconf)
    yield from kconf.terms
    doubtful = kconf.doubtful | {symbol.name for symbol, _, _, values in kconf.numbers if too_long(values)}
    yield from (fault for fault in warned(kconf.warnings) if doubtful.isdisjoint(fault.what.split()))


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
