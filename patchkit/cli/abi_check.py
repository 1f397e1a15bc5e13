"""`patchkit abi check`: whether an engine's shared objects fit a torch and a system."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchkit.abi.verdicts import CheckReport, Verdict
from patchkit.cli.abi_ground import Ground, against_torch, find_distribution, sites_of
from patchkit.cli.abi_show import check_document, show_check
from patchkit.cli.options import Choice, json_option, tree_options
from patchkit.errors import ExitStatus, UsageError
from patchkit.output import Output
from patchkit.pattern import compile_lazily

if TYPE_CHECKING:
    from patchkit.abi.system import System
    from patchkit.abi.wheel_name import Destination

_GLIBC = compile_lazily(r"[0-9]{1,2}\.[0-9]{1,3}(?:\.[0-9]{1,3})?")


@click.command("check", short_help="Whether an engine's shared objects fit a torch and a system.")
@tree_options
@click.option(
    "--wheel",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A .whl file; its shared objects are unpacked for a while.",
)
@click.option(
    "--against", default="", metavar="torch==VERSION", help="A released torch; without it the one that is installed."
)
@click.option(
    "--glibc", default="", metavar="VERSION", help="Judge for a system with this glibc, not for this machine."
)
@click.option("--verbose", "-v", is_flag=True, help="Show columns that are ok, and every missing symbol.")
@json_option
def command(*, choice: Choice, wheel: Path | None, against: str, glibc: str, verbose: bool, output: Output) -> int:
    """Judge every shared object of a distribution in seven columns, and say what to install. Nothing is imported.

    Columns: symbols, system versions, mangling, layout, vtable, op schemas, argument classes. What nobody recorded is
    `not known`, never ok; a difference that the file may touch, or may not, is `at risk`. --target takes an engine or
    any other distribution; --wheel a file, whose name is compared with its metadata, this machine and --python. Exit
    status 1 when something is broken.

    \b
    Examples:
      patchkit abi check --target vllm --python /opt/venv/bin/python
      patchkit abi check --target vllm --root ./unpacked --against torch==2.8.0
      patchkit abi check --wheel vllm-0.6.3-cp38-abi3-manylinux1_x86_64.whl --against torch==2.4.0 --glibc 2.31
    """
    with ExitStack() as opened:
        ground = _ground(choice, wheel, opened, output)
        report = _report(ground, against, glibc)
    if output.machine:
        output.document(check_document(report))
    else:
        show_check(report, output, verbose=verbose)
    return ExitStatus.REFUSED if report.verdict is Verdict.BROKEN else ExitStatus.DONE


def _ground(choice: Choice, wheel: Path | None, opened: ExitStack, output: Output) -> Ground:
    if wheel is None:
        return find_distribution(choice, output)
    if choice.target or choice.root or choice.fetch:
        raise UsageError("--wheel and --target, --root or --fetch name two things", hint="give one of them")
    from patchkit.abi.inspect_wheel import unpacked_objects

    sites, python, version = sites_of(choice) if choice.python is not None else ((), None, "")
    root, dist_info = opened.enter_context(unpacked_objects(wheel, tell=output.progress))
    return Ground(root=root, dist_info=dist_info, sites=sites, python=python, python_version=version, file=wheel.name)


def _report(ground: Ground, against: str, glibc: str) -> CheckReport:
    from patchkit.abi.check import check_wheel
    from patchkit.abi.inspect_wheel import inspect_tree
    from patchkit.abi.libraries import find_libraries
    from patchkit.abi.snapshot import TORCH, stored_facts
    from patchkit.abi.system import other_system, read_system
    from patchkit.abi.wheel_name import audit_name
    from patchkit.abi.wheel_tags import audit_tags

    facts = stored_facts()
    if ground.dist_info.partition("-")[0] == TORCH:
        raise UsageError("torch is what others are checked against", hint="`patchkit abi diff` compares two torches")
    wheel = inspect_tree(ground.root, ground.dist_info, file=ground.file)
    torch = against_torch(against, ground, wheel, facts)
    if glibc and not _GLIBC.fullmatch(glibc):
        raise UsageError(f"no glibc {glibc[:40]!r}", why="  --glibc takes a version like 2.31")
    system = other_system(glibc) if glibc else read_system()
    findings = (
        *audit_name(wheel, _destination(ground, system, is_here=not glibc)),
        *audit_tags(wheel, ground.python_version),
        *find_libraries(wheel, ground.root, sites=ground.sites, system=system, torch=torch),
    )
    return check_wheel(wheel, torch, system=system, facts=facts, findings=findings)


def _destination(ground: Ground, system: System, *, is_here: bool) -> Destination:
    """Return where the wheel is to go: this machine, or any with a glibc, and the Python that was named or runs."""
    from patchkit.abi.wheel_name import Destination

    return Destination(
        machine=os.uname().machine if is_here else "",
        glibc=system.versions.get("GLIBC", ""),
        python_version=ground.python_version or f"{sys.version_info[0]}.{sys.version_info[1]}",
        chosen=bool(ground.python_version),
    )
