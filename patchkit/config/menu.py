"""kconfiglib's menuconfig on a menu that is loaded: the screen that kernel people know, in a real terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import IO, Any

import kconfiglib as library

from patchkit.config.kconfig import Menu
from patchkit.config.written import render_dotconfig
from patchkit.counting import counted
from patchkit.output import visible

OpenFile = Callable[[str, str], IO[str]]
"""Opens a file for reading or writing text, as `open(name, mode)` does."""
_WIDEST, _MOST_LINES = 72, 16


class _Silence:
    """Takes what menuconfig prints when its screen is not there."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


class _Kept:
    """What of a menu is saved, and how it gets there."""

    def __init__(self, menu: Menu, saved: bytes | None, save: Callable[[bytes], Sequence[str]]) -> None:
        import menuconfig

        self._menu = menu
        self._there = None if saved is None else _lines(saved)
        self._save = save
        self._save_other = menuconfig._try_save  # noqa: SLF001
        self._error = menuconfig._error  # noqa: SLF001

    def differs(self) -> bool:
        """Tell whether there is something to save: a value that waits for its toggle is none."""
        return self._there != _lines(render_dotconfig(self._menu))

    def save(self, write_to: Callable[[str], str], name: str, what: str) -> str | None:
        """Save, or show why not and return None; what menuconfig saves beside the configuration is its matter."""
        if what != "configuration":
            return self._save_other(write_to, name, what)  # type: ignore[no-any-return]
        content = render_dotconfig(self._menu)
        wrong = self._save(content)
        if wrong:
            self._error(_fitted(["This cannot be saved:", "", *wrong]))
            return None
        self._there = _lines(content)
        return "saved"


def run_menu(
    menu: Menu,
    file: str,
    open_file: OpenFile,
    *,
    saved: bytes | None,
    save: Callable[[bytes], Sequence[str]],
    goal: str,
) -> None:
    """Show the menu until the user leaves it. It begins with what `file` says, and calls `save` with a whole .config.

    `saved` is what counts as saved already: who leaves with that is not asked. None: nothing is. `save` returns what is
    wrong with a configuration that it did not take; `goal` says what happens to one that it took. A value that is none
    of its symbol is refused when it is typed. Raises ImportError where Python has no curses. A file with mistakes in it
    is shown as far as it means something.
    """
    import menuconfig

    ask, ask_where = menuconfig._input_dialog, menuconfig._save_dialog  # noqa: SLF001
    kept = _Kept(menu, saved, save)

    def save_as(write_to: Callable[[str], str], name: str, what: str) -> str | None:  # there is one place to save to
        if what != "configuration":
            return ask_where(write_to, name, what)  # type: ignore[no-any-return]
        if not kept.save(write_to, name, what):
            return None
        menuconfig._msg("Saved", goal)  # noqa: SLF001
        return file  # also where another was loaded

    def ask_other(title: str, name: str, words: str | None = None) -> str | None:  # ours means nothing to the user
        return ask(title, "" if name == file else name, words)  # type: ignore[no-any-return]

    with (
        redirect_stdout(_Silence()),
        _instead(library, standard_config_filename=lambda: file),
        _instead(
            menuconfig, standard_config_filename=lambda: file, _needs_save=kept.differs, _check_valid=_checking(menu)
        ),
        _instead(menuconfig, _try_save=kept.save, _save_dialog=save_as, _input_dialog=ask_other),
        _instead(menu.kconf, _open=open_file),  # the parser's own reads only what it was given
    ):
        menuconfig.menuconfig(menu.kconf)


def _checking(menu: Menu) -> Callable[[Any, str], bool]:
    """Return what tells whether a text is a value of a symbol, and shows what it has to be."""
    import menuconfig

    fits = menuconfig._check_valid  # noqa: SLF001

    def is_value(symbol: Any, text: str) -> bool:
        decimal = menu.decimals.get(symbol.name)
        if decimal is None or decimal.takes(text):
            return bool(fits(symbol, text))
        menuconfig._error(_fitted([f"{text!r} is not {decimal.words}"]))  # noqa: SLF001
        return False

    return is_value


def _fitted(lines: Sequence[str]) -> str:
    """Break lines so that they stand in a dialog of the smallest screen, and cut what does not."""
    from textwrap import wrap

    broken = [part for line in lines for part in wrap(visible(line), _WIDEST) or [""]]
    more = [f"... and {counted(len(broken) - _MOST_LINES, 'more line')}"] if len(broken) > _MOST_LINES else []
    return "\n".join([*broken[:_MOST_LINES], *more])


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


def _lines(content: bytes) -> set[str]:
    """Return the lines of a .config that set something."""
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    return {line for line in lines if line.startswith("CONFIG_") or line.endswith(" is not set")}
