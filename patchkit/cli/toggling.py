"""What the config commands share: which toggles are meant, on which release, and how settings are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path, PurePosixPath
from typing import Any

import click

from patchkit.asking import Request, has_others, named_series, receipt_for, series_of
from patchkit.cli.options import Choice, make_request, select_tree
from patchkit.config.configuration import Usage
from patchkit.config.dotconfig import Assignment
from patchkit.config.fault import Fault
from patchkit.errors import OtherReleaseError, RefusedError, TargetError
from patchkit.generated import Definitions
from patchkit.output import Output
from patchkit.quoting import typed
from patchkit.receipt import Receipt
from patchkit.record import dataclass, replace
from patchkit.session import Standing, open_session
from patchkit.target import Layout, TargetTree
from patchkit.toggles import Toggles, given_assignments, kept_assignments, read_toggles
from patchkit.unnamed import read_definitions

_Function = Callable[..., Any]
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)

output_option = click.option(
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE.",
)


def toggle_options(function: _Function) -> _Function:
    """Add what says which series and which settings; the function gets them as `asked`, a dict for `make_request`."""

    @click.option(
        "--patches", multiple=True, type=_DIRECTORY, help="A directory with a series of your own. Repeatable."
    )
    @click.option("--no-shipped", is_flag=True, help="Leave the shipped series out.")
    @click.option("--config", multiple=True, type=click.Path(path_type=Path), help="A .config file. Repeatable.")
    @click.option("--set", "settings", multiple=True, metavar="CONFIG_X=y", help="A setting. Repeatable.")
    @wraps(function)
    def with_asked(*args: Any, **kwargs: Any) -> Any:
        asked = {name: kwargs.pop(name) for name in ("patches", "no_shipped", "config", "settings")}
        nothing: dict[str, Any] = {"patch": (), "strip": None, "base": None}
        flags = dict.fromkeys(("reverse", "package_only", "strict", "unlocked", "check_syntax"), False)
        return function(*args, asked={**asked, **nothing, **flags}, **kwargs)

    return with_asked


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """Toggles with what was asked for set on them. `receipt` is that of the tree, None for one that is not patched.

    `stale`: the tree was patched with other Kconfig files.
    """

    tree: TargetTree
    receipt: Receipt | None
    request: Request
    toggles: Toggles
    stale: bool


def open_toggles(choice: Choice, asked: dict[str, Any], output: Output, *, kept: bool = True) -> Opened:
    """Read the toggles for a tree, or for a release that is only named. What is wrong is in the resolution.

    `kept`: what was set on the tree counts too.
    """
    request = make_request(asked)
    tree, receipt, standing = _tree_of(choice, output)
    request = replace(request, found=tuple(series_of(request, tree)))
    toggles = _read(request, tree, receipt, given_assignments(request.terms), kept=kept)
    if toggles is None:
        raise RefusedError("no toggles")
    was = {name: one.kconfigs for name, one in standing.items()}
    stale = any(was.get(name, one.kconfigs) != one.kconfigs for name, one in toggles.definitions.items())
    return Opened(tree=tree, receipt=receipt, request=request, toggles=toggles, stale=stale)


def _read(
    request: Request, tree: TargetTree, receipt: Receipt | None, given: Sequence[Assignment], *, kept: bool
) -> Toggles | None:
    found = series_of(request, tree)
    receipt = receipt_for(receipt, found, tree)
    named = {one.symbol for one in given}
    before = [one for one in kept_assignments(receipt) if kept and one.symbol not in named]
    others = receipt if has_others(found, tree, receipt) else None
    series, unread = named_series(found, tree), request.terms.unread
    return read_toggles(tree, series, [*before, *given], unread=unread, always=True, others=others)


def faults_of(opened: Opened, given: Sequence[Assignment], *, kept: bool) -> tuple[Fault, ...]:
    """Return what would be wrong with other settings for the same tree; `kept`: what was set on it counts too."""
    request = replace(opened.request, terms=replace(opened.request.terms, unread=()))
    toggles = _read(request, opened.tree, opened.receipt, given, kept=kept)
    return toggles.resolution.faults if toggles is not None else ()


def _tree_of(choice: Choice, output: Output) -> tuple[TargetTree, Receipt | None, Mapping[str, Definitions]]:
    """Return the tree that is meant, its receipt, and the Kconfig files that its layers were patched with."""
    try:
        tree = select_tree(choice, output)
    except OtherReleaseError:
        raise
    except TargetError:
        named = _named_release(choice)
        if named is None:
            raise
        output.note(f"no such tree is here: this is for {named.engine} {named.version} as released")
        return named, None, {}
    with open_session(tree, write=False, say=output.note) as session:
        replaced = session.condition.standing is Standing.REPLACED
        receipt = None if replaced else session.situation.receipt
        return tree, receipt, read_definitions(session.state) if receipt is not None and receipt.resolved else {}


def _named_release(choice: Choice) -> TargetTree | None:
    """Return a release that is known by its name only, as in `--target vllm==0.6.3` where no tree is named."""
    from patchkit.engine import find_engine

    name, equal, version = choice.target.partition("==")
    engine = find_engine(name.strip())
    if engine is None or not equal or choice.root or choice.python or choice.fetch:
        return None
    return TargetTree(
        engine=engine.name,
        version=version.strip(),
        root=Path(),
        package=PurePosixPath(engine.package),
        layout=Layout.WHEEL,
        distribution="",
        python=None,
        python_version="",
        evidence=(),
    )


def gate_words(patch: str, usage: Usage) -> str:
    """Say which patch a symbol switches, and whether by guards: then it is in the files whatever the value."""
    return f"gates {patch}{', by guards that stand in the files' if patch in usage.guarded else ''}"


def command_for(choice: Choice, asked: dict[str, Any], advice: Sequence[str], *, patched: bool) -> str:
    """Return the command that makes the settings of the advice beside those asked for, on a patched tree or another."""
    advised = {setting.partition("=")[0] for setting in advice}
    settings = [*(one for one in asked["settings"] if one.partition("=")[0] not in advised), *advice]
    words = ["patchkit", "config", "set", *settings] if patched else ["patchkit", "apply"]
    for option, given in (("--target", choice.target), ("--root", choice.root), ("--python", choice.python)):
        words += [option, str(given)] if given else []
    for option, paths in (("--patches", asked["patches"]), ("--config", asked["config"])):
        words += [word for path in paths for word in (option, str(path))]
    words += ["--no-shipped"] if asked["no_shipped"] else []
    if not patched:
        words += [word for setting in settings for word in ("--set", setting)]
    return typed(*words)


def show_faults(faults: Iterable[Fault], output: Output) -> None:
    """Write what is wrong, each with its place."""
    for fault in faults:
        output.line(f"{fault.place}: {fault.what}", style="bad")
        for line in fault.why.split("\n") if fault.why else ():
            output.line(f"    {line}")


def fault_documents(faults: Iterable[Fault]) -> list[dict[str, str]]:
    """Return faults for JSON."""
    return [{"place": fault.place, "what": fault.what, "why": fault.why} for fault in faults]


def write_text(content: bytes, file: Path | None, output: Output) -> None:
    """Write a .config to a file, whole or not at all, or to stdout."""
    if file is None:
        output.raw(content)
        return
    from patchkit.cli.ground import writing
    from patchkit.writing import write_file

    output.acting = True
    with writing(file):
        write_file(file, content)
