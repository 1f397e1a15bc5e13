"""kconfiglib's menuconfig on a menu that is loaded: the screen that kernel people know, in a real terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from typing import IO, Any

import kconfiglib as library

from patchkit.config.kconfig import Menu

OpenFile = Callable[[str, str], IO[str]]
"""Opens a file for reading or writing text, as `open(name, mode)` does."""


class _Silence:
    """Takes what menuconfig prints when its screen is not there."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def run_menu(menu: Menu, file: str, open_file: OpenFile, *, saved: bytes | None) -> None:
    """Show the menu until the user leaves it. It begins with what `file` says, and writes that file when it is saved.

    `saved` is what counts as saved already: who leaves with that is not asked. None: nothing is. Raises ImportError
    where Python has no curses. A file with mistakes in it is shown as far as it means something.
    """
    import menuconfig

    kconf: Any = menu.kconf

    def differs() -> bool:  # menuconfig's own takes a value that waits for its toggle for a change
        whole: str = kconf._config_contents("")  # noqa: SLF001 -- the public one writes a file
        return saved is None or _lines(whole) != _lines(saved.decode("utf-8", "surrogateescape"))

    kept = library.standard_config_filename, menuconfig._needs_save  # noqa: SLF001
    library.standard_config_filename = menuconfig.standard_config_filename = lambda: file
    menuconfig._needs_save = differs  # noqa: SLF001
    kconf._open = open_file  # noqa: SLF001 -- the parser's reads only what it was given
    try:
        with redirect_stdout(_Silence()):
            menuconfig.menuconfig(kconf)
    finally:
        library.standard_config_filename = menuconfig.standard_config_filename = kept[0]
        menuconfig._needs_save = kept[1]  # noqa: SLF001
        del kconf._open  # noqa: SLF001


def _lines(text: str) -> set[str]:
    """Return the lines of a .config that set something."""
    return {line for line in text.split("\n") if line.startswith("CONFIG_") or line.endswith(" is not set")}
