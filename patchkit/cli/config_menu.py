"""`patchkit config menu`: the configuration edited on the screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, Any

import click

from patchkit.cli.options import Choice, command_output, source_date_epoch, timestamp, tree_options
from patchkit.cli.reading import read_text
from patchkit.cli.toggling import Opened, faults_of, open_toggles, toggle_options, write_text
from patchkit.errors import ExitStatus, RefusedError, UsageError
from patchkit.output import Output
from patchkit.record import replace


@click.command("menu", short_help="Edit the configuration on the screen.")
@click.option(
    "--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Edit this .config file."
)
@tree_options
@toggle_options
def command(*, file: Path | None, choice: Choice, asked: dict[str, Any]) -> int:
    """Show the toggles as a menu, as `make menuconfig` does. It opens on a configuration with mistakes too.

    On a patched tree what is saved is set as `config set` does it. With --output FILE only that file is read and
    written; `apply --config FILE` takes it. Keys: arrows, Enter, y and n, ? for help, / to search, S to save, Q to
    leave.

    \b
    Examples:
      patchkit config menu --target vllm
      patchkit config menu --target vllm==0.6.3 --output prod.config
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = "`config set`, or `apply --set`, needs none"
        raise UsageError("the menu needs a terminal", why="stdin or stdout is none", hint=hint)
    output = command_output(acting=True)
    if file is not None and file.exists():
        asked = {**asked, "config": (file, *asked["config"])}
    opened = open_toggles(choice, asked, output)
    if file is None and opened.receipt is None:
        hint = "--output FILE writes a .config for `apply --config FILE`"
        raise RefusedError("the tree is not patched: there is nowhere to keep a configuration", hint=hint)
    return _edit(opened, choice, file, output)


def _edit(opened: Opened, choice: Choice, file: Path | None, output: Output) -> int:
    """Edit a copy, and put what was saved where it belongs."""
    import tempfile

    before, waiting = _beginning(opened, file)
    with tempfile.TemporaryDirectory(prefix="patchkit-menu-") as scratch:
        working = Path(scratch, ".config")
        if before is not None:
            working.write_bytes(before + waiting)
        goal = "When you leave, it is set on the tree." if file is None else f"When you leave, it is in {file.name}."
        _run(opened, working, before, goal, kept=file is None)
        after = working.read_bytes() if working.exists() else None
        if after is None or after == (before or b"") + waiting:
            output.line("nothing was saved")
            return ExitStatus.DONE
        if file is None:
            return _set(opened, choice, working, output)
    write_text(after, file, output)
    output.line(f"written: {file}", style="good")
    return ExitStatus.DONE


def _beginning(opened: Opened, file: Path | None) -> tuple[bytes | None, bytes]:
    """Return the .config to begin with, and the lines of values that wait for their toggle.

    None for a file that is not there yet, so that the menu offers to save it.
    """
    from patchkit.config.written import render_dotconfig, render_waiting

    if file is not None and not file.exists():
        return None, b""
    if file is not None and all(one.origin.startswith(f"{file}:") for one in opened.request.terms.assignments):
        return file.read_bytes(), b""
    return render_dotconfig(opened.toggles.menu), render_waiting(opened.toggles.menu)


def _run(opened: Opened, working: Path, saved: bytes | None, goal: str, *, kept: bool) -> None:
    """Show the menu; what is saved in it is checked as `apply` and `config set` do it, and is in `working` then."""
    from patchkit.config.dotconfig import parse_dotconfig
    from patchkit.config.menu import run_menu

    def save(content: bytes) -> list[str]:
        settings = parse_dotconfig(content.decode("utf-8", "surrogateescape"), "the menu")
        faults = (*settings.faults, *faults_of(opened, settings.assignments, kept=kept))
        if not faults:
            working.write_bytes(content)
        return [line for one in faults for line in (one.what, *(f"  {why}" for why in one.why.split("\n")))]

    try:
        run_menu(opened.toggles.menu, str(working), _open, saved=saved, save=save, goal=goal)
    except ImportError as error:
        hint = "`config set` and `apply --config FILE` need no screen"
        raise RefusedError("this Python has no curses", why=str(error), hint=hint) from error


def _open(name: str, mode: str) -> IO[str]:
    return Path(name).open(mode, encoding="utf-8", errors="surrogateescape")


def _set(opened: Opened, choice: Choice, working: Path, output: Output) -> int:
    """Set what was saved on the tree."""
    from patchkit.cli.config_set import show_change
    from patchkit.cli.options import select_tree
    from patchkit.config.dotconfig import merge, parse_dotconfig
    from patchkit.reconfigure import reconfigure
    from patchkit.session import open_session

    given = parse_dotconfig(read_text(working, output.progress), "the menu").assignments
    terms = replace(opened.request.terms, configuration=merge(given), assignments=given, unread=())
    request = replace(opened.request, terms=terms)
    epoch = source_date_epoch()
    with open_session(select_tree(choice, output), write=True, say=output.note) as session:
        done = reconfigure(session, request, now=timestamp(epoch), epoch=epoch)
    show_change(done, output)
    return ExitStatus.REFUSED if done.result.plan.refused else ExitStatus.DONE
