"""Turn a symbol, or the text of a failed import, into words: what it is, who has it, and why it is missing.

Ranges of releases come from the stored facts and end where those end; beyond, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from patchkit.abi.demangle import demangle
from patchkit.abi.mangling import is_runtime_symbol, is_torch_symbol, qualified_name
from patchkit.abi.meanings import library_meanings, symbol_meanings, version_meanings
from patchkit.abi.ranges import release_range
from patchkit.abi.snapshot import TORCH, Facts
from patchkit.errors import UsageError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

_MANGLED = compile_lazily(r"_?(_Z[A-Za-z0-9_.$]{2,})")
_UNDEFINED = compile_lazily(
    r"(?:undefined symbol:?|symbol not found:|lookup error:.{0,1000}?symbol:?)\s*`?'?([A-Za-z_][\w.$]*)"
)
_VERSION = compile_lazily(r"\b((?:GLIBC|GLIBCXX|CXXABI)_[0-9][0-9.]*[0-9])")
_LIBRARY = compile_lazily(r"\b(lib[\w.+-]{1,255}?\.so(?:\.[0-9]+)*)(?=: cannot open| => not found)")
_MODULE = compile_lazily(r"No module named '?([A-Za-z_][\w.]*)")
_PLAIN = compile_lazily(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP = 256  # symbols between two reports


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """Another form of the same function, and the releases that have it, in words."""

    words: str
    where: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What is known about one symbol, symbol version, library or module.

    `kind` is one of these words. `releases` are the stored torches that export it and `where` says so in words;
    `needed_by` the stored binaries that import it; `others` other signatures of the function; `meanings` the causes.
    """

    kind: str
    subject: str
    words: str
    releases: tuple[str, ...]
    where: str
    libraries: tuple[str, ...]
    needed_by: tuple[str, ...]
    others: tuple[Signature, ...]
    meanings: tuple[str, ...]


def explain(text: str, facts: Facts, on_explained: Callable[[int, int], None] | None = None) -> tuple[Explanation, ...]:
    """Explain what a text names: a mangled or demangled symbol, a symbol version, a library or module not found.

    `on_explained` is told now and then how many of how many symbols are done. UsageError when nothing is named.
    """
    found = [
        *_explain_symbols(tuple(_symbols(text, facts)), facts, on_explained),
        *(_of_version(version) for version in dict.fromkeys(_VERSION.findall(text))),
        *(_of_library(name, facts) for name in dict.fromkeys(_LIBRARY.findall(text))),
        *(_of_module(name) for name in dict.fromkeys(_MODULE.findall(text))),
    ]
    if found:
        return tuple(found)
    raise UsageError(
        "there is no symbol, symbol version or library in this text",
        why=f"  {text.strip().rpartition(chr(10))[2][-80:]!r}",
        hint="paste the line with `undefined symbol`, or give the symbol itself: _ZN3c104cuda9SetDeviceEa",
    )


def _symbols(text: str, facts: Facts) -> Iterator[str]:
    plain = [name for name in _UNDEFINED.findall(text) if not name.startswith(("_Z", "__Z"))]
    named = [*_MANGLED.findall(text), *plain]
    if not named and _PLAIN.fullmatch(text.strip()):
        named = [text.strip()]
    if not named and "::" in text:
        named = _by_words(text, facts)
    yield from dict.fromkeys(named)


def _by_words(text: str, facts: Facts) -> list[str]:
    """Find a demangled name among the symbols that stored binaries need, blanks aside."""
    wanted = "".join(text.split())
    words = demangle(known_names(facts))
    exact = [name for name, said in words.items() if "".join(said.split()) == wanted]
    if exact or len(wanted) < 8:  # noqa: PLR2004 -- `c10::` alone would find hundreds
        return exact
    return [name for name, said in words.items() if "".join(said.split("(")[0].split()) == wanted.split("(")[0]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Looked:
    """What is looked up for all symbols of a text at once: names in words, other signatures, who needs a symbol."""

    words: Mapping[str, str]
    others: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]]
    needing: Mapping[str, tuple[str, ...]]


def _explain_symbols(
    names: Sequence[str], facts: Facts, on_explained: Callable[[int, int], None] | None
) -> Iterator[Explanation]:
    if not names:
        return
    others = _other_signatures(names, facts)
    words = demangle((*names, *(one for rows in others.values() for one, _ in rows)))
    looked = _Looked(words=words, others=others, needing=_needing(names, facts))
    for done, name in enumerate(names):
        if on_explained is not None and done and done % _STEP == 0:
            on_explained(done, len(names))
        yield _explain_symbol(name, facts, looked)


def _explain_symbol(name: str, facts: Facts, looked: _Looked) -> Explanation:
    table = facts.symbols
    is_theirs = not is_runtime_symbol(name)
    releases = table.releases_of(name) if is_theirs else ()
    signatures = tuple(
        Signature(words=looked.words.get(one, one), where=release_range(having, table.releases))
        for one, having in looked.others[name]
    )
    return Explanation(
        kind="symbol",
        subject=name,
        words=looked.words.get(name, name),
        releases=releases,
        where=_where(name, releases, facts),
        libraries=table.libraries_of(name) if is_theirs else (),
        needed_by=looked.needing[name],
        others=signatures,
        meanings=symbol_meanings(name, releases, signatures=bool(signatures), facts=facts),
    )


def _where(name: str, releases: tuple[str, ...], facts: Facts) -> str:
    table = facts.symbols
    plain = [one for one in table.releases if "+" not in one]
    first, last = plain[0], plain[-1]
    if not releases:
        return f"in none of the stored torch releases ({first} to {last})" if is_torch_symbol(name) else ""
    said = f"in torch {release_range(releases, table.releases)}"
    having = [one for one in plain if one in releases]
    if not having:
        return said
    after = plain[plain.index(having[-1]) + 1 :]
    before = plain[: plain.index(having[0])]
    said += f"; not yet in {before[-1]}" if before else f"; {first} is the oldest that is stored"
    return said + (f"; gone in {after[0]}" if after else f"; {last} is the newest that is stored")


def _other_signatures(names: Sequence[str], facts: Facts) -> dict[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Return, for each, other symbols of its qualified name and the torches that export them, where names are known."""
    of_function: dict[tuple[str, ...], list[tuple[str, tuple[str, ...]]]] = {}
    for other in known_names(facts):
        if (function := qualified_name(other)) and (releases := facts.symbols.releases_of(other)):
            of_function.setdefault(function, []).append((other, releases))
    return {
        name: tuple(row for row in of_function.get(qualified_name(name), ()) if row[0] != name)
        if is_torch_symbol(name)
        else ()
        for name in names
    }


def known_names(facts: Facts) -> tuple[str, ...]:
    """Return the torch symbols whose names are known: those that stored binaries import, and the rule base's."""
    from patchkit.abi.meanings import KNOWN_SYMBOLS

    imported = (one.name for wheel in facts.wheels for facts_ in wheel.objects for one in facts_.imports)
    return tuple(dict.fromkeys((*KNOWN_SYMBOLS, *(name for name in imported if is_torch_symbol(name)))))


def _needing(names: Sequence[str], facts: Facts) -> dict[str, tuple[str, ...]]:
    """Return, for each, the stored binaries that import it."""
    found: dict[str, dict[str, None]] = {name: {} for name in names}
    for wheel in facts.wheels:
        for one in wheel.objects if wheel.distribution != TORCH else ():
            for imported in one.imports:
                if imported.name in found:
                    found[imported.name][f"{wheel.title} {one.path}"] = None
    return {name: tuple(binaries) for name, binaries in found.items()}


def _of_version(version: str) -> Explanation:
    return _plain("version", version, version_meanings(version))


def _of_library(name: str, facts: Facts) -> Explanation:
    return _plain("library", name, library_meanings(name, facts))


def _of_module(name: str) -> Explanation:
    package, _, inner = name.partition(".")
    said: tuple[str, ...]
    if inner:
        said = (
            f"{package} was found and has no {inner}: it was built without it, or for another Python",
            f"or a directory {package}/ where Python was started hides the installed one",
        )
    else:
        said = (f"{name} is not installed for the Python that said this, or another {name}/ hides it",)
    return _plain("module", name, said)


def _plain(kind: str, subject: str, meanings: tuple[str, ...]) -> Explanation:
    return Explanation(
        kind=kind,
        subject=subject,
        words=subject,
        releases=(),
        where="",
        libraries=(),
        needed_by=(),
        others=(),
        meanings=meanings,
    )
