"""A configuration as .config files: the whole of it, and the minimal one that gives the same."""

from __future__ import annotations

from typing import Any

import kconfiglib as library

from patchkit.config.kconfig import Menu

HEAD = "# patchkit: `patchkit apply --config` reads this, `patchkit config menu` edits it\n"


def render_dotconfig(menu: Menu) -> bytes:
    """Return every symbol that has a value, as kernel people know it."""
    text: str = menu.kconf._config_contents(HEAD)  # noqa: SLF001 -- the public one writes a file
    return _prefixed(text, menu).encode("utf-8", "surrogateescape")


def render_defconfig(menu: Menu) -> bytes:
    """Return only the lines that differ from the defaults: what to keep in version control."""
    text: str = menu.kconf._min_config_contents("")  # noqa: SLF001
    return _prefixed(text, menu).encode("utf-8", "surrogateescape")


def render_waiting(menu: Menu) -> bytes:
    """Return the lines of symbols that were given a value and cannot have it now: with what they need it comes back."""
    symbols = (one for one in menu.kconf.unique_defined_syms if one.name not in menu.given)
    waiting = (one for one in symbols if one.user_value is not None and not one.config_string)
    lines = "".join(f"{_line(one.name, _given(one), one.orig_type)}\n" for one in waiting)
    return lines.encode("utf-8", "surrogateescape")


def _given(symbol: Any) -> str:
    return library.TRI_TO_STR[symbol.user_value] if symbol.orig_type == library.BOOL else str(symbol.user_value)


def _line(name: str, text: str, kind: int) -> str:
    if kind == library.STRING:
        return f'CONFIG_{name}="{library.escape(text)}"'
    return f"# CONFIG_{name} is not set" if kind == library.BOOL and text == "n" else f"CONFIG_{name}={text}"


def _prefixed(text: str, menu: Menu) -> str:
    """Put the 0x before hex values that a Kconfig or a setting wrote without it: a .config has it always."""
    lines = text.split("\n")
    bare = {f"CONFIG_{one.name}={one.str_value}" for one in menu.kconf.unique_defined_syms if _is_bare(one)}
    return "\n".join(line.replace("=", "=0x", 1) if line in bare else line for line in lines)


def _is_bare(symbol: Any) -> bool:
    value = str(symbol.str_value)
    return bool(symbol.orig_type == library.HEX and value and value[:2] not in ("0x", "0X") and value[0] != "-")
