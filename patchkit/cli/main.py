"""The command `patchkit`: a table of commands, each loaded when it is called, and the one place where errors end."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import StringIO

import click

from patchkit.cli.streams import columns, fill_gaps, leave
from patchkit.errors import ExitStatus, PatchkitError, UsageError
from patchkit.output import Output
from patchkit.version import VERSION

COMMANDS = {
    "targets": "Engines found here: version, layout, the series that fits, patched or not.",
    "plan": "What apply would do: the verdict of every hunk and patch. Writes nothing.",
    "apply": "Apply a series or a diff, all or nothing.",
    "status": "Pristine, patched (by what, when), drifted, or replaced by a reinstall.",
    "diff": "What differs from pristine, as a unified diff.",
    "revert": "Take out everything, a layer, or a patch; the bytes are as before.",
    "config": "Toggles: show, set, why, menu, defconfig, savedefconfig, olddefconfig, diff.",
    "series": "Author and keep a series of patches: list, show, lint, new, import, edit, refresh, lock.",
    "attention": "The attention kernels: checked against a float64 reference.",
    "abi": "Whether binaries fit: check, explain, layout, matrix, env, diff, probe, snapshot.",
    "native": "Stand before an engine's attention: build, doctor, run, env, status, top, set.",
}
"""Name and short help of every command; the module `patchkit.cli.<name>` holds it as `command`."""

_WIDEST, _NARROWEST = 100, 50


class LazyGroup(click.Group):
    """A group that knows its commands by name and help, and imports one only to run it or to show its own help."""

    def __init__(self, *, package: str, table: dict[str, str], **attributes: object) -> None:
        super().__init__(**attributes)  # type: ignore[arg-type]  # click's own keyword arguments
        self._package = package
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """Return the names in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of a command."""
        if cmd_name not in self._table:
            return None
        module = import_module(f"{self._package}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options of the group itself; those of a command stand behind its name."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            behind = next((name for name in args if name in self._table), None)
            if behind is None:
                raise
            why = f"No such option {error.option_name!r} before a command. Options stand behind it: "
            raise click.NoSuchOption(
                error.option_name, why + f"{ctx.command_path} {behind} {error.option_name}", ctx=ctx
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or say which one was meant."""
        if args and args[0] not in self._table and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0][:_WIDEST], self._table, 1)
            if near:
                ctx.fail(f"No such command {args[0]!r}: did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the table without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._table.items()))


@click.command(
    cls=LazyGroup,
    package="patchkit.cli",
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 refused, 2 usage, 3 a bug, 4 not the tree the series was cut against, "
    "5 the tree changed since it was patched, 130 interrupted.",
)
@click.version_option(VERSION, prog_name="patchkit")
def patchkit() -> None:
    """Carry your own patches on top of a vLLM or SGLang release, and know at every moment what is in the tree.

    \b
    Examples:
      patchkit targets
      patchkit plan --target vllm==0.6.3
      patchkit apply --root ./site-packages --patch pr-9034.diff
    """


def main() -> None:
    """Run the command line and leave with its exit status."""
    fill_gaps()
    leave(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit status; errors are shown here and nowhere else."""
    asked = arguments[: arguments.index("--")] if "--" in arguments else arguments
    output = Output(machine="--json" in asked)
    status = _run(arguments, output)
    output.flush()
    if not output.lost:
        return status
    output.note(f"error: the output could not be written: {output.lost}", style="bad")
    if output.acting and status == ExitStatus.DONE:
        output.note("  what the command does was done all the same")
    return status if status or (output.acting and not output.machine) else int(ExitStatus.REFUSED)


def _run(arguments: list[str], output: Output) -> int:
    width = max(min(columns(), _WIDEST) - 2, _NARROWEST)  # as click has it, which loads shutil to find out
    try:
        status = patchkit.main(
            args=arguments, prog_name="patchkit", standalone_mode=False, obj=output, terminal_width=width
        )
    except PatchkitError as error:
        output.error(error)
        return int(error.status)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        return _misused(error, output)
    except (KeyboardInterrupt, click.Abort):
        output.note("interrupted", style="bad")
        output.failure(ExitStatus.INTERRUPTED, what="interrupted")
        return int(ExitStatus.INTERRUPTED)
    except SystemExit as leaving:  # click's own way out of completion, and of a pipe whose reader has gone
        gone = sys.stdout is not output.stdout  # click has wrapped it
        sys.stdout, sys.stderr = output.stdout, output.stderr
        return int(ExitStatus.DONE if gone else leaving.code or 0)
    except Exception as error:  # noqa: BLE001 -- the top edge: whatever else comes up is a bug of patchkit
        return _unforeseen(error, output)
    return int(status) if isinstance(status, int) else int(ExitStatus.DONE)


def _misused(error: click.ClickException, output: Output) -> int:
    """Show what click has to say: the usage, and what is wrong with it."""
    shown = StringIO()
    error.show(shown)
    for line in shown.getvalue().splitlines():
        output.note(line)
    output.failure(ExitStatus.USAGE, what=error.format_message())
    return int(ExitStatus.USAGE)


def _unforeseen(error: Exception, output: Output) -> int:
    """Tell what the surroundings took away from what is a bug."""
    if isinstance(error, FileNotFoundError) and _working_directory_is_gone():
        output.error(UsageError("the working directory is not there any more", hint="change to one that is there"))
        return int(ExitStatus.USAGE)
    if isinstance(error, OSError) and _place_of(error) == "click.utils":  # it wrote help
        output.lose(error)
        return int(ExitStatus.DONE)
    from patchkit.cli.bug import report_bug

    return report_bug(error, output)


def _place_of(error: Exception) -> str:
    """Return the module in which an error came up."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else str(trace.tb_frame.f_globals["__name__"])


def _working_directory_is_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 -- a start without pathlib is a tenth shorter
    except FileNotFoundError:
        return True
    return False


if __name__ == "__main__":  # as in start.py
    main()
