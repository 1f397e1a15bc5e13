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


def run_menu(menu: Menu, file: str, open_file: OpenFile) -> None:
    """Show the menu until the user leaves it. It begins with what `file` says, and writes that file when it is saved.

    Raises ImportError where Python has no curses. A file with mistakes in it is shown as far as it means something.
    """
    import menuconfig

    kconf: Any = menu.kconf
    kept = library.standard_config_filename
    library.standard_config_filename = menuconfig.standard_config_filename = lambda: file
    kconf._open = open_file  # noqa: SLF001 -- the parser's reads only what it was given
    try:
        with redirect_stdout(_Silence()):
            menuconfig.menuconfig(kconf)
    finally:
        library.standard_config_filename = menuconfig.standard_config_filename = kept
        del kconf._open  # noqa: SLF001
