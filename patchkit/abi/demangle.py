"""Mangled C++ names in words, by `c++filt`, else by the C++ runtime library.

Either runs in a child process: a name from a damaged file shall not bring us down.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from patchkit.errors import RefusedError
from patchkit.process import run_child

_SECONDS = 20.0
_LONGEST = 1 << 15
# In an interpreter of its own: __cxa_demangle (Itanium C++ ABI, section 3.4) of libstdc++, a name a line.
_CHILD = """
import ctypes, sys
demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
demangle.restype = ctypes.c_void_p
for line in sys.stdin.buffer:
    name, status = line.rstrip(b"\\n"), ctypes.c_int()
    made = demangle(name, None, None, ctypes.byref(status)) if name.startswith(b"_Z") else None
    sys.stdout.buffer.write((ctypes.string_at(made) if made else name) + b"\\n")
"""
_STRING_LONG = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
_STRING_OLD = "std::basic_string<char, std::char_traits<char>, std::allocator<char> >"


def demangle(names: Iterable[str]) -> Mapping[str, str]:
    """Return name -> words; a name that is no mangled one, or that nothing here can read, stays as it is."""
    asked = [name for name in dict.fromkeys(names) if name.startswith("_Z") and "\n" not in name]
    asked = [name for name in asked if len(name) <= _LONGEST]
    for arguments in (("c++filt",), (sys.executable, "-I", "-c", _CHILD)) if asked else ():
        if (lines := _ask(arguments, asked)) is not None:
            return dict(zip(asked, map(_shortened, lines), strict=True))
    return {}


def in_words(name: str) -> str:
    """Return one name in words."""
    return demangle((name,)).get(name, name)


def _ask(arguments: tuple[str, ...], names: list[str]) -> list[str] | None:
    text = "\n".join(names) + "\n"
    try:
        done = run_child(arguments, input=text.encode("utf-8", "surrogateescape"), timeout=_SECONDS)
    except RefusedError:
        return None
    lines = done.stdout.decode("utf-8", "backslashreplace").splitlines()
    return lines if done.status == 0 and len(lines) == len(names) else None


def _shortened(text: str) -> str:
    """Write std::string for what it is short for, with the ABI where it is the new one."""
    return text.replace(_STRING_LONG, "std::__cxx11::string").replace(_STRING_OLD, "std::string")
