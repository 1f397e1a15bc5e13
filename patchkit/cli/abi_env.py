"""`patchkit abi env`: whether engines can share one environment."""

from __future__ import annotations

import click

from patchkit.abi.sharing import Member, Shared, Sharing
from patchkit.cli.options import json_option
from patchkit.errors import ExitStatus, UsageError
from patchkit.output import Output
from patchkit.pattern import compile_lazily

_PYTHON = "3.12"
_VERSION = compile_lazily(r"3\.[0-9]{1,3}")


@click.command("env", short_help="Whether engines can share one environment: what pins what.")
@click.argument("engines", nargs=-1, required=True)
@click.option("--python-version", default=_PYTHON, show_default=True, metavar="3.N", help="For environment markers.")
@click.option("--all", "everything", is_flag=True, help="Show packages without a conflict too.")
@json_option
def command(*, engines: tuple[str, ...], python_version: str, everything: bool, output: Output) -> int:
    """Compare what engines require of the same packages, and the torches that their binaries fit. From stored facts.

    Each ENGINE is NAME==VERSION, with extras where they matter (sglang without extras means sglang[all]); the kernels
    that one pins come with it. Exit status 1 when they cannot share an environment.

    \b
    Examples:
      patchkit abi env vllm==0.6.3 sglang==0.5.1
      patchkit abi env vllm==0.33.0 'sglang[srt]==0.5.23' --all
    """
    from patchkit.abi.matrix import stored_wheel
    from patchkit.abi.sharing import compare_requirements, split_extras
    from patchkit.abi.snapshot import stored_facts

    if not _VERSION.fullmatch(python_version):
        raise UsageError(f"no Python {python_version[:40]!r}", why="  --python-version takes one like 3.12")
    facts = stored_facts()
    named = [(stored_wheel(text, facts), extras) for text, extras in map(split_extras, engines)]
    sharing = compare_requirements(named, facts, python_version=python_version)
    if output.machine:
        output.document(_document(sharing))
    else:
        _show(sharing, output, everything=everything)
    return ExitStatus.DONE if sharing.possible else ExitStatus.REFUSED


def _show(sharing: Sharing, output: Output, *, everything: bool) -> None:
    for member in sharing.members:
        output.line(_title(member), style="head")
        if member.torches is not None:
            output.line(f"  its binaries fit torch {', '.join(member.torches) or 'in none of the stored releases'}")
    for one in sharing.shared:
        if everything or not one.fits:
            _show_package(one, output)
    if not sharing.pythons:
        for member in sharing.members:
            output.line(f"{member.wheel.title} requires Python {member.wheel.requires_python or '(any)'}", style="bad")
    if sharing.torches == ():
        output.line("no stored torch has the symbols of all their binaries", style="bad")
    if sharing.possible:
        output.line("verdict: nothing that is known keeps them out of one environment", style="good")
    else:
        conflicts = ", ".join(one.package for one in sharing.conflicts)
        reason = f": no version of {conflicts} satisfies all" if conflicts else ""
        output.line(f"verdict: they cannot share an environment{reason}", style="bad")
    output.next_step(_next(sharing))


def _next(sharing: Sharing) -> str:
    return "" if sharing.possible else "give each an environment of its own"


def _title(member: Member) -> str:
    extras = f"[{','.join(member.extras)}]" if member.extras else ""
    return f"{member.wheel.distribution}{extras}=={member.wheel.version}"


def _show_package(one: Shared, output: Output) -> None:
    fits = f"{one.example} would do" if one.fits else "conflict"
    output.line(f"{one.package}: {fits}", style="good" if one.fits else "bad")
    for pin in one.pins:
        output.line(f"  {pin.specifier or '(any)'}  by {pin.by}")


def _document(sharing: Sharing) -> dict[str, object]:
    return {
        "schema": 1,
        "status": 0 if sharing.possible else 1,
        "possible": sharing.possible,
        "next": _next(sharing),
        "members": [
            {
                "distribution": one.wheel.distribution,
                "version": one.wheel.version,
                "extras": list(one.extras),
                "requires_python": one.wheel.requires_python,
                "torches": None if one.torches is None else list(one.torches),
            }
            for one in sharing.members
        ],
        "pythons": list(sharing.pythons),
        "torches": None if sharing.torches is None else list(sharing.torches),
        "packages": [
            {
                "package": one.package,
                "fits": one.fits,
                "pins": [{"specifier": pin.specifier, "by": pin.by} for pin in one.pins],
            }
            for one in sharing.shared
        ],
    }
