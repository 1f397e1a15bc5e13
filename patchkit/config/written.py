"""A configuration as .config files: the whole of it, and the minimal one that gives the same."""

from __future__ import annotations

from typing import Any

import kconfiglib as library

from patchkit.config.configuration import HEAD, Value, setting_line
from patchkit.config.kconfig import Menu
from patchkit.config.kconfig_faults import BASES, number_of
from patchkit.config.symbols import KINDS, symbols_of


def render_dotconfig(menu: Menu) -> bytes:
    """Return every symbol that has a value, as kernel people know it."""
    text: str = menu.kconf._config_contents(HEAD)  # noqa: SLF001 -- the public one writes a file
    return _prefixed(text, menu).encode("utf-8", "surrogateescape")


def render_defconfig(menu: Menu) -> bytes:
    """Return only the lines that differ from the defaults: what to keep in version control."""
    text: str = menu.kconf._min_config_contents("")  # noqa: SLF001
    return _prefixed(text, menu).encode("utf-8", "surrogateescape")


def written_symbols(menu: Menu) -> frozenset[str]:
    """Return the symbols that a whole .config has a line for: what cannot be chosen and is n or nothing has none."""
    return frozenset(symbol.name for symbol in symbols_of(menu) if symbol.config_string)


def render_waiting(menu: Menu) -> bytes:
    """Return the lines of symbols that were given a value and cannot have it now: with what they need it comes back."""
    waiting = (one for one in symbols_of(menu) if one.user_value is not None and not one.config_string)
    return "".join(f"{setting_line(_given(one))}\n" for one in waiting).encode("utf-8", "surrogateescape")


def _given(symbol: Any) -> Value:
    text = library.TRI_TO_STR[symbol.user_value] if symbol.orig_type == library.BOOL else str(symbol.user_value)
    return Value(symbol=symbol.name, kind=KINDS[symbol.orig_type], text=text)


def _prefixed(text: str, menu: Menu) -> str:
    """Put the 0x before hex values that a Kconfig or a setting wrote without it: a .config has it always.

    A number without a value, or with one that is none, has no line: nothing reads `CONFIG_N=`.
    """
    empty = {f"CONFIG_{one.name}={one.str_value}" for one in menu.kconf.unique_defined_syms if _is_without(one)}
    lines = [line for line in text.split("\n") if line not in empty]
    bare = {f"CONFIG_{one.name}={one.str_value}" for one in menu.kconf.unique_defined_syms if _is_bare(one)}
    return "\n".join(line.replace("=", "=0x", 1) if line in bare else line for line in lines)


def _is_without(symbol: Any) -> bool:
    base = BASES.get(symbol.orig_type)
    return not symbol.str_value or (base is not None and number_of(str(symbol.str_value), base) is None)


def _is_bare(symbol: Any) -> bool:
    value = str(symbol.str_value)
    return bool(symbol.orig_type == library.HEX and value and value[:2] not in ("0x", "0X") and value[0] != "-")
