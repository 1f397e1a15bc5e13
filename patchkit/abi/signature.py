"""The parameters of a C++ function, out of its name in words as c++filt writes it."""

from __future__ import annotations

from patchkit.abi.arguments import Machine, Way
from patchkit.pattern import compile_lazily

_OPEN, _CLOSE = "(<[{", ")>]}"
_SUFFIX = compile_lazily(r"(?:\s+const|\s*&&?|\s*\[clone [^\]]*\]|\[abi:\w+\])+$")
_STRING = compile_lazily(
    r"std::(?:__cxx11::)?(?:basic_string<char, ?std::char_traits<char>, ?std::allocator<char> ?>|string)"
)
_INTEGERS = frozenset(
    f"{sign}{kind}".strip()
    for sign in ("", "unsigned ", "signed ")
    for kind in ("char", "short", "int", "long", "long long", "bool", "wchar_t", "char16_t", "char32_t", "")
) - {""}
_INTEGER = dict.fromkeys(Machine, (Way.INTEGER,))
_VECTOR = dict.fromkeys(Machine, (Way.VECTOR,))
_LONG_DOUBLE = {Machine.AMD64: (Way.STACK,), Machine.AARCH64: (Way.VECTOR,)}
# They have destructors, whatever is in them.
_OWNERS = ("std::vector<", "std::shared_ptr<", "std::unique_ptr<", "std::function<")
_FLOATS = {"float": _VECTOR, "double": _VECTOR, "long double": _LONG_DOUBLE}


def parameters(function: str) -> tuple[str, ...]:
    """Return the types of the parameters; nothing for a variable, and for a function without any."""
    text = _SUFFIX.sub("", function.strip())
    if not text.endswith(")"):
        return ()
    start = _opening(text)
    inside = text[start + 1 : -1].strip()
    return () if start < 0 or inside in ("", "void") else tuple(_split(inside))


def plain_travel(name: str) -> dict[Machine, tuple[Way, ...]] | None:
    """Return how a pointer, a reference or a number travels; None for other classes."""
    text = name.strip()
    if text.endswith(("*", "&", "* const")) or "(*)" in text:
        return dict(_INTEGER)
    if text.startswith(_OWNERS) and text.endswith(">"):
        return dict.fromkeys(Machine, (Way.ADDRESS,))
    if text in _INTEGERS:
        return dict(_INTEGER)
    return dict(_FLOATS[text]) if text in _FLOATS else None


def canonical(name: str) -> str:
    """Write a type so that header and demangler agree: no blanks, `long` for int64_t, one name for std::string."""
    text = _STRING.sub("std::string", name.strip().removesuffix(" const"))
    return text.replace("int64_t", "long").replace("long int", "long").replace(" ", "")


def _opening(text: str) -> int:
    """Return where the parenthesis opens that the last character closes."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        if text[place] == ")":
            depth += 1
        elif text[place] == "(":
            depth -= 1
            if depth == 0:
                return place
    return -1


def _split(inside: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(inside):
        if sign in _OPEN:
            depth += 1
        elif sign in _CLOSE and inside[place - 1 : place + 1] != "->":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(inside[start:place].strip())
            start = place + 1
    return [*parts, inside[start:].strip()]
