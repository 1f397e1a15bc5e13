"""A configuration as .config files: the whole of it, and the minimal one that gives the same."""

from __future__ import annotations

from patchkit.config.kconfig import Menu

HEAD = "# patchkit: `patchkit apply --config` reads this, `patchkit config menu` edits it\n"


def render_dotconfig(menu: Menu) -> bytes:
    """Return every symbol that has a value, as kernel people know it."""
    text: str = menu.kconf._config_contents(HEAD)  # noqa: SLF001 -- the public one writes a file
    return text.encode("utf-8", "surrogateescape")


def render_defconfig(menu: Menu) -> bytes:
    """Return only the lines that differ from the defaults: what to keep in version control."""
    text: str = menu.kconf._min_config_contents("")  # noqa: SLF001
    return text.encode("utf-8", "surrogateescape")
