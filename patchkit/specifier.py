"""The words after --target: an engine's name and a PEP 440 set, read with a mark under what cannot be meant."""

from __future__ import annotations

import functools
import re

from patchkit.engine import ENGINES, KNOWN_NAMES, Engine, find_engine, normalise_name
from patchkit.errors import UsageError
from patchkit.pattern import compile_lazily
from patchkit.version import set_has

_PLAIN_VERSION = compile_lazily(r"[0-9]+(?:\.[0-9]+)*")
_NAME = compile_lazily(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)?\s*")
_CLAUSE = compile_lazily(r"[^,]*")
_VERSION_AFTER = compile_lazily(r"[-@=:/ ]*v?([0-9][0-9A-Za-z.+!-]*)$")
# The sets that people write nearly always: valid without asking packaging, whose import costs more than all else here.
_PLAIN_SET = compile_lazily(r"(?:==|>=|<=|!=|<|>)[0-9]+(?:\.[0-9]+)*(?:,(?:==|>=|<=|!=|<|>)[0-9]+(?:\.[0-9]+)*)*")
_USUAL_SET = compile_lazily(r"(?:(?:^|,)(?:==|>=|<=|!=|<|>)[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?)+")
_TARGET = compile_lazily(r"\s*([A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*((?:[<>=!~].*)?)")
_LONGEST = 256  # of a number of 4,301 digits Python makes no int, and packaging passes its ValueError on
_HINT = "write NAME or NAME with versions: vllm==0.6.3, 'sglang>=0.5,<0.5.2'"


def parse_specifier(text: str) -> tuple[Engine, str, str]:
    """Return the engine, the normalised name and the PEP 440 set ("" for any version) of `vllm==0.6.3`."""
    if len(text) > _LONGEST:
        raise UsageError(f"{text[:40]!r}... is too long", why=_too_long(text), hint=_HINT)
    match = _NAME.match(text)
    name, end = (match[1] or "", match.end()) if match else ("", 0)
    engine = find_engine(name)
    if engine is None:
        raise unknown_engine(text, name)
    if text[end:].strip():
        _check_clauses(text, end, engine)
    return engine, normalise_name(name), text[end:].rstrip().removesuffix(",").rstrip()


def _too_long(text: str) -> str:
    return f"expected at most {_LONGEST} characters, found {len(text):,}"


def plain_release(version: str) -> tuple[int, ...] | None:
    """Return the numbers of a version that is nothing but numbers, to compare with others; None for any other.

    Zeros at the end do not count: 0.6 is 0.6.0.
    """
    if len(version) > _LONGEST or not _PLAIN_VERSION.fullmatch(version):
        return None
    numbers = [int(part) for part in version.split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


@functools.lru_cache(maxsize=256)  # the patches of a series say the same
def split_target(text: str) -> tuple[str, str]:
    """Split `vllm>=0.6.3,<0.6.5` into the engine's normalised name and its PEP 440 set; ValueError if it is neither."""
    if len(text) > _LONGEST:
        raise ValueError(_too_long(text))
    match = _TARGET.fullmatch(text)
    if match is None:
        raise ValueError("expected an engine and versions, as in `vllm>=0.6.3,<0.6.5`")
    engine, versions = normalise_name(match.group(1)), match.group(2).strip()
    if not versions or _USUAL_SET.fullmatch(versions):
        return engine, versions
    from packaging.specifiers import SpecifierSet

    try:
        return engine, str(SpecifierSet(versions))
    except ValueError as error:
        raise ValueError(str(error)) from error


def accepts(specifier: str, version: str) -> bool:
    """Tell whether a version is in the set: `==0.6.3` has 0.6.3+cpu, and a pre-release that is there counts."""
    if not specifier or (version and version == pinned_version(specifier)):
        return True
    release = plain_release(version)
    if release is not None and len(specifier) <= _LONGEST and _PLAIN_SET.fullmatch(specifier):
        return all(_holds(clause, release) for clause in specifier.split(","))
    return set_has(specifier, version) is True


def _holds(clause: str, release: tuple[int, ...]) -> bool:
    """Compare a release with a clause of a plain set, as PEP 440 does it."""
    operator = clause.rstrip("0123456789.")
    wanted = plain_release(clause[len(operator) :]) or ()
    return {
        "==": release == wanted,
        "!=": release != wanted,
        ">=": release >= wanted,
        "<=": release <= wanted,
        ">": release > wanted,
        "<": release < wanted,
    }[operator]


def pinned_version(specifier: str) -> str:
    """Return the one version that a set names (`==0.6.3`), "" when it names several."""
    match = re.fullmatch(r"\s*===?\s*([0-9A-Za-z.+!-]+)\s*", specifier)
    return match[1] if match else ""


def unknown_engine(text: str, name: str) -> UsageError:
    """Return the error for a name that is no engine's, with the nearest that is."""
    import difflib

    known = "known engines: " + ", ".join(map(_names_of, ENGINES))
    if not name:
        return UsageError(
            f"no engine named in {text!r}", why=_marked(text, len(text) - len(text.lstrip())), hint=f"{_HINT}\n{known}"
        )
    written = normalise_name(name)
    hint = known
    for start in sorted(KNOWN_NAMES, key=len, reverse=True):
        if written.startswith(start) and (version := _VERSION_AFTER.fullmatch(name[len(start) :])):
            hint = f"write {start}=={version[1]}\n{known}"
            break
    else:
        if near := difflib.get_close_matches(written, KNOWN_NAMES, n=1):
            hint = f"did you mean {near[0]}?\n{known}"
    return UsageError(f"unknown engine {name!r}", why=_marked(text, text.index(name), len(name)), hint=hint)


def _names_of(engine: Engine) -> str:
    others = [name for name in engine.distributions if name != engine.name]
    return f"{engine.name} (also {', '.join(others)})" if others else engine.name


def _check_clauses(text: str, start: int, engine: Engine) -> None:
    if _PLAIN_SET.fullmatch(text, start):
        return
    from packaging.specifiers import Specifier

    position = start
    while position <= len(text):
        match = _CLAUSE.match(text, position)
        clause = match[0] if match else ""
        try:
            if clause.strip() or position < len(text):  # a comma at the very end is allowed, as packaging allows it
                Specifier(clause)
        except ValueError:
            blank = len(clause) - len(clause.lstrip())
            raise UsageError(
                f"{clause.strip() or ','!r} is not a version specifier",
                why=_marked(text, position + blank, len(clause.strip()) or 1),
                hint=_repair(clause, engine),
            ) from None
        position += len(clause) + 1


def _repair(clause: str, engine: Engine) -> str:
    """Guess what was meant: `=0.6.3`, `@0.6.3` and ` 0.6.3` are one version."""
    version = _VERSION_AFTER.fullmatch(clause.strip())
    return f"write {engine.name}=={version[1]}" if version else _HINT


def _marked(text: str, start: int, length: int = 1) -> str:
    shown = "".join(character if character.isprintable() else " " for character in text)
    return f"  {shown}\n  {' ' * start}{'^' * max(1, length)}"
