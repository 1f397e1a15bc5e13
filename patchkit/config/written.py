"""A configuration as .config files: the whole of it, and the minimal one that gives the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kconfiglib as library

from patchkit.config.kconfig import Menu

HEAD = "# patchkit: `patchkit apply --config` reads this, `patchkit config menu` edits it\n"


def render_dotconfig(menu: Menu) -> bytes:
    """Return every symbol that has a value, as kernel people know it, without those that patchkit gives."""
    return _without_given(menu, menu.kconf._config_contents(HEAD))  # noqa: SLF001 -- the public one writes a file


def render_defconfig(menu: Menu) -> bytes:
    """Return only the lines that differ from the defaults: what to keep in version control."""
    return _without_given(menu, menu.kconf._min_config_contents(""))  # noqa: SLF001


def _without_given(menu: Menu, text: str) -> bytes:
    kept = "".join(line for line in text.splitlines(keepends=True) if _name(line) not in menu.given)
    return kept.encode("utf-8", "surrogateescape")


def _name(line: str) -> str:
    found = line.removeprefix("# ").removeprefix("CONFIG_")
    return found.partition("=")[0].partition(" ")[0].strip() if "CONFIG_" in line else ""


def depth_first(menu: Menu) -> Iterator[Any]:
    """Yield the nodes of symbols in the order of the menu, each symbol once."""
    seen: set[str] = set()
    for node in menu.kconf.node_iter():
        if isinstance(node.item, library.Symbol) and node.item.name not in seen:
            seen.add(node.item.name)
            yield node
