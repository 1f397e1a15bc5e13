"""kconfiglib's menuconfig on a menu that is loaded: the screen that kernel people know, in a real terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
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


def run_menu(menu: Menu, file: str, open_file: OpenFile, *, saved: bytes | None, goal: str) -> None:
    """Show the menu until the user leaves it. It begins with what `file` says, and writes that file when it is saved.

    `saved` is what counts as saved already: who leaves with that is not asked. None: nothing is. `goal` says what
    happens to what was saved. Raises ImportError where Python has no curses. A file with mistakes in it is shown as
    far as it means something.
    """
    import menuconfig

    kconf: Any = menu.kconf
    ask, ask_where, write = menuconfig._input_dialog, menuconfig._save_dialog, kconf.write_config  # noqa: SLF001

    there = None if saved is None else _lines(saved.decode("utf-8", "surrogateescape"))

    def differs() -> bool:  # menuconfig's own takes a value that waits for its toggle for a change
        return there != _lines(kconf._config_contents(""))  # noqa: SLF001 -- the public one writes a file

    def write_here(_: str) -> str:  # who loads another file saves into this one all the same
        nonlocal there
        said: str = write(file)
        there = _lines(kconf._config_contents(""))  # noqa: SLF001
        return said

    def save(write_to: Callable[[str], str], name: str, what: str) -> str | None:  # there is one place to save to
        if what != "configuration":
            return ask_where(write_to, name, what)  # type: ignore[no-any-return]
        if not menuconfig._try_save(write_to, file, what):  # noqa: SLF001
            return None
        menuconfig._msg("Saved", goal)  # noqa: SLF001
        return file

    def ask_other(title: str, name: str, words: str | None = None) -> str | None:  # ours means nothing to the user
        return ask(title, "" if name == file else name, words)  # type: ignore[no-any-return]

    with (
        redirect_stdout(_Silence()),
        _instead(library, standard_config_filename=lambda: file),
        _instead(menuconfig, standard_config_filename=lambda: file, _needs_save=differs),
        _instead(menuconfig, _save_dialog=save, _input_dialog=ask_other),
        _instead(kconf, _open=open_file, write_config=write_here),  # the parser's _open reads only what it was given
    ):
        menuconfig.menuconfig(kconf)


@contextmanager
def _instead(holder: Any, **others: Any) -> Iterator[None]:
    """Let names of a module or an object mean others for a while."""
    kept = {name: getattr(holder, name) for name in others}
    try:
        for name, other in others.items():
            setattr(holder, name, other)
        yield
    finally:
        for name, own in kept.items():
            setattr(holder, name, own)


def _lines(text: str) -> set[str]:
    """Return the lines of a .config that set something."""
    return {line for line in text.split("\n") if line.startswith("CONFIG_") or line.endswith(" is not set")}
