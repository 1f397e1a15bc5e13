"""What a mangled C++ name says without demangling it: whose it is, which std::string and which optional it has.

Grammar: Itanium C++ ABI, section 5.1. Only its tokens are told apart: identifiers must not be searched for codes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from functools import lru_cache

from patchkit.pattern import compile_lazily

# A literal (its digits are a value), a substitution, a template parameter or array bound, a constructor or destructor,
# the length of an identifier, or one more character of code. Bounded, so that no name takes quadratic time.
_TOKEN = compile_lazily(r"L[a-z]n?[0-9]{1,20}E|S[0-9A-Z]{0,6}_|S[a-z]|T[0-9]{0,6}_|A[0-9]{1,20}_|[CD][0-5]|([0-9]+)|.")
_NAMESPACES = frozenset({"c10", "at", "torch", "caffe2"})
_WRITTEN = tuple(f"{len(one)}{one}" for one in sorted(_NAMESPACES))
_STABLE = ("aoti_torch_", "torch_")
_RUNTIME = ("_ZNSt", "_ZNKSt", "_ZSt", "_ZTISt", "_ZTVSt")
_LONGEST = 1 << 16
_MOST_CODES = 8


class StringAbi(enum.Enum):
    """Which std::string a name or an interface has: GCC's dual ABI, _GLIBCXX_USE_CXX11_ABI."""

    OLD = 0
    NEW = 1
    NONE = None


def identifiers(name: str) -> tuple[str, ...]:
    """Return the identifiers of a mangled name in order: `c10`, `cuda`, `SetDevice`."""
    return tuple(token for token in _tokens(name) if token[:1] not in ("", "\0"))


def qualified_name(name: str) -> tuple[str, ...]:
    """Return the parts of a nested name without templates: `_ZN3c104cuda9SetDeviceEa` is c10, cuda, SetDevice.

    A constructor's last part is `C`, a destructor's `D`; ABI tags are left out. () for any other kind of name.
    """
    if not name.startswith("_ZN"):
        return ()
    parts: list[str] = []
    codes = ""
    for part in _tokens(name):
        if part.startswith("\0"):
            codes += part[1:]
        elif codes.endswith("B"):  # an ABI tag: [abi:cxx11]
            codes = codes[:-1]
        elif codes.strip("NKRO"):
            return ()
        else:
            parts.append(part)
        kind = codes.lstrip("NKRO")
        if len(codes) > _MOST_CODES:
            return ()
        if kind in ("C1", "C2", "D1", "D2"):
            return (*parts, kind[0])
        if kind == "E":
            return tuple(parts)
    return ()


@lru_cache(maxsize=1 << 16)
def is_torch_symbol(name: str) -> bool:
    """Tell by its name whether a symbol is torch's: of c10, at, torch or caffe2, or of the stable C interface."""
    if name.startswith("_Z"):
        return any(one in name for one in _WRITTEN) and not _NAMESPACES.isdisjoint(identifiers(name))
    return name.startswith(_STABLE)


def is_runtime_symbol(name: str) -> bool:
    """Tell whether a symbol is of the C++ runtime alone; torch's libraries may carry a copy, which is not theirs."""
    return name.startswith(_RUNTIME) and not is_torch_symbol(name)


def is_stable(name: str) -> bool:
    """Tell whether a symbol is of torch's stable C interface, which later releases keep."""
    return name.startswith(_STABLE)


def string_abi(name: str) -> StringAbi:
    """Return which std::string stands in a mangled name: `Ss` is the old one, `__cxx11` the new one."""
    tokens = set(_tokens(name))
    if "__cxx11" in tokens or "cxx11" in tokens:
        return StringAbi.NEW
    return StringAbi.OLD if "\0Ss" in tokens else StringAbi.NONE


def has_c10_optional(name: str) -> bool:
    """Tell whether a name has torch's own `c10::optional`, which releases before 2.2 had for std::optional."""
    found = identifiers(name)
    return "optional" in found and "\0St" not in set(_before_optional(name))


def _before_optional(name: str) -> Iterator[str]:
    """Yield the token that stands before each identifier `optional`."""
    last = ""
    for part in _tokens(name):
        if part == "optional":
            yield last
        last = part


def _tokens(name: str) -> Iterator[str]:
    """Yield identifiers as they are, and codes after a NUL, so that neither passes for the other."""
    place = 2 if name.startswith("_Z") else len(name)
    while place < min(len(name), _LONGEST):
        match = _TOKEN.match(name, place)
        if match is None:
            return
        place = match.end()
        if match[1]:
            length = int(match[1][:5])
            yield name[place : place + length]
            place += length
        else:
            yield "\0" + match[0]
