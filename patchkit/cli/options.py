"""Options that several commands share, and what they mean as records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from patchkit.asking import Request
from patchkit.cli.reading import read_patch, read_text
from patchkit.errors import TargetError, UsageError
from patchkit.output import Output
from patchkit.quoting import typed
from patchkit.record import dataclass
from patchkit.target import TargetTree
from patchkit.tree import Entries
from patchkit.wanted import Terms

_Function = Callable[..., Any]
_LONGEST_EPOCH = 11  # digits; the year 5138
_OTHER_TREE = "name the directory that holds the package, as site-packages does, or a checkout of the engine"
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Which tree is meant: the values of --target, --root, --python and --fetch."""

    target: str
    root: Path | None
    python: Path | None
    fetch: Path | None


def tree_options(function: _Function) -> _Function:
    """Add --target, --root, --python and --fetch; the function gets them as `choice`."""

    @click.option(
        "--target", default="", metavar="ENGINE[==VERSION]", help="Engine and version: vllm==0.6.3, sglang>=0.5."
    )
    @click.option(
        "--root", type=_DIRECTORY, help="The tree: a checkout, an unpacked wheel, a site-packages, any directory."
    )
    @click.option(
        "--python", type=click.Path(path_type=Path), metavar="EXE", help="The environment of this interpreter."
    )
    @click.option(
        "--fetch", type=click.Path(path_type=Path), metavar="DIR", help="Download the wheel with pip, unpack it there."
    )
    @wraps(function)
    def with_choice(
        *args: Any, target: str, root: Path | None, python: Path | None, fetch: Path | None, **kwargs: Any
    ) -> Any:
        return function(*args, choice=Choice(target=target, root=root, python=python, fetch=fetch), **kwargs)

    return with_choice


def names_a_tree(choice: Choice) -> bool:
    """Tell whether the options name a tree at all."""
    return bool(choice.target or choice.root or choice.python or choice.fetch)


def json_option(function: _Function) -> _Function:
    """Add --json; the function gets an Output as `output`."""

    @click.option("--json", "machine", is_flag=True, help="Write one JSON document to stdout.")
    @wraps(function)
    def with_output(*args: Any, machine: bool, **kwargs: Any) -> Any:
        del machine  # `run` looks for it before click does, for errors of usage
        return function(*args, output=command_output(), **kwargs)

    return with_output


def command_output(*, acting: bool = False) -> Output:
    """Return the Output of the command that runs; `acting`: it is there for what it does."""
    output = click.get_current_context().find_object(Output) or Output()
    output.acting = output.acting or acting
    return output


base_option = click.option("--base", type=_DIRECTORY, help="The tree the patch was cut against: proves scopes.")


def request_options(function: _Function) -> _Function:
    """Add what says which patches, on which terms; the function gets them as `asked`, a dict for `make_request`."""
    options: Sequence[Callable[[_Function], _Function]] = (
        click.option(
            "--patches", multiple=True, type=_DIRECTORY, help="A directory with a series of your own. Repeatable."
        ),
        click.option("--no-shipped", is_flag=True, help="Leave the shipped series out, when you carry your own."),
        click.option(
            "--patch", multiple=True, type=click.Path(path_type=Path), help="A diff (- for stdin). Repeatable."
        ),
        click.option(
            "--strip", "-p", type=click.IntRange(0, 99), help="Components to strip; found from the tree without."
        ),
        click.option("--reverse", "-R", is_flag=True, help="Apply the diff the other way round."),
        click.option("--package-only", is_flag=True, help="Leave out what is not in this tree (tests, docs, csrc)."),
        base_option,
        click.option("--strict", is_flag=True, help="Refuse an offset whose function or class is not proven."),
        click.option("--unlocked", is_flag=True, help="Take a series without a lock for this release."),
        click.option("--config", multiple=True, type=click.Path(path_type=Path), help="A .config file. Repeatable."),
        click.option("--set", "settings", multiple=True, metavar="CONFIG_X=y", help="A toggle. Repeatable."),
        click.option("--check-syntax", is_flag=True, help="Check every patched Python file, not only shifted ones."),
    )
    names = ("patches", "no_shipped", "patch", "strip", "reverse", "package_only", "base", "strict", "unlocked")

    @wraps(function)
    def with_request(*args: Any, **kwargs: Any) -> Any:
        asked = {name: kwargs.pop(name) for name in (*names, "config", "settings", "check_syntax")}
        return function(*args, asked=asked, **kwargs)

    decorated: _Function = with_request
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def select_tree(
    choice: Choice, output: Output, asked: dict[str, Any] | None = None, *, plain: bool = False
) -> TargetTree:
    """Find the tree that the options mean. A diff onto a directory without an engine is for a plain tree.

    `plain`: any directory will do.
    """
    from patchkit.nearby import meant_below
    from patchkit.state import HOME
    from patchkit.target import find_targets, parse_target, plain_target, resolve_target

    if choice.target:
        spec = parse_target(choice.target, root=choice.root, python=choice.python)
        if choice.fetch is not None:
            from patchkit.fetch import fetch_wheel

            fetched = fetch_wheel(spec, choice.fetch, progress=output.progress)
            spec = parse_target(choice.target, root=fetched, python=None)
        return resolve_target(spec)
    if choice.fetch is not None:
        raise UsageError("--fetch goes with --target", why="give --target ENGINE==VERSION")
    if choice.root is None and choice.python is None:
        raise UsageError(
            "no tree named",
            why="give --target ENGINE==VERSION, or --root DIR",
            hint="`--target vllm` takes the one that is here, of any version; `patchkit targets` lists what is here",
        )
    found = find_targets(root=choice.root, python=choice.python)
    if len(found) == 1:
        return found[0]
    if found:
        raise _several(choice, found)
    if choice.root is None:
        raise TargetError(f"no engine in {_place(choice)}", why="nothing that patchkit knows is installed there")
    if plain or (asked is not None and asked["patch"]) or (choice.root / HOME / "tree").is_dir():
        return plain_target(choice.root)
    meant = meant_below(choice.root)
    hint = f"did you mean {meant}" if meant else _OTHER_TREE
    raise TargetError(f"no engine in {choice.root}", why="a series needs one", hint=hint)


def _several(choice: Choice, found: tuple[TargetTree, ...]) -> TargetError:
    """Say which engines are there, and what to type for each."""
    from patchkit.typed import typed_tree

    engines = dict.fromkeys(tree.engine for tree in found)
    which = [f"--target {name}" for name in engines] if len(engines) > 1 else [typed_tree(tree) for tree in found]
    return TargetError(
        f"several engines in {_place(choice)}",
        why=f"found {', '.join(f'{tree.engine} {tree.version}' for tree in found)}",
        hint=f"say which: {', or '.join(which)}",
    )


def _place(choice: Choice) -> str:
    return f"the environment of {choice.python}" if choice.root is None else str(choice.root)


def make_request(asked: dict[str, Any], tree: TargetTree | None = None) -> Request:
    """Read the files that the options name. Without --patch the shipped series is meant, and the user's above it.

    `tree` is what they go onto: a base is seen with its paths.
    """
    from patchkit.config.dotconfig import merge, parse_dotconfig, parse_setting
    from patchkit.resources import patches_directory, user_directories

    say = command_output().progress
    files = [parse_dotconfig(read_text(path, say), str(path)) for path in asked["config"]]
    given = [*(file.assignments for file in files), tuple(parse_setting(text) for text in asked["settings"])]
    configuration = merge(*given)
    terms = Terms(
        strip=asked["strip"],
        reverse=asked["reverse"],
        package_only=asked["package_only"],
        strict=asked["strict"],
        unlocked=asked["unlocked"],
        base=_opened_base(asked["base"], tree),
        configuration=configuration,
        assignments=tuple(one for layer in given for one in layer),
        unread=tuple(fault for file in files for fault in file.faults),
    )
    ad_hoc = bool(asked["patch"])
    directories = tuple(asked["patches"]) or (() if ad_hoc else user_directories(Path.cwd()))
    if (configuration or terms.unread) and ad_hoc and not directories:
        raise UsageError("--set and --config go with a series", why="a diff that is given with --patch has no toggles")
    if asked["no_shipped"] and not directories and not ad_hoc:
        raise UsageError(
            "--no-shipped leaves nothing to apply", hint="name a series with --patches or a diff with --patch"
        )
    if terms.reverse and not ad_hoc:
        raise UsageError("--reverse goes with --patch", hint="`patchkit revert` takes a series out")
    return Request(
        shipped=None if ad_hoc or asked["no_shipped"] else patches_directory(),
        directories=directories,
        patches=tuple(read_patch(path, say) for path in asked["patch"]),
        terms=terms,
        check_all_syntax=asked["check_syntax"],
        lenient=not asked["patches"],
    )


def typed_request(asked: dict[str, Any]) -> str:
    """Return the options of a request as one types them, each with a blank before it."""
    words = []
    for name, value in asked.items():
        option = _option_of(name)
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            values = value if isinstance(value, tuple) else (value,)
            words += [f"{option}={typed(one)}" for one in values]
    return "".join(f" {word}" for word in words)


def given_options(asked: dict[str, Any]) -> list[str]:
    """Return the names of the options of a request that were given."""
    return [_option_of(name) for name, value in asked.items() if value is not False and value not in (None, ())]


def _option_of(name: str) -> str:
    return "--set" if name == "settings" else f"--{name.replace('_', '-')}"


def _opened_base(directory: Path | None, tree: TargetTree | None) -> Entries | None:
    if directory is None or tree is None:
        return None
    from patchkit.base import open_base

    return open_base(directory, tree)


def source_date_epoch() -> int | None:
    """Return SOURCE_DATE_EPOCH in seconds, None when it is not set. UsageError when it is no number."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_EPOCH:
        raise UsageError(f"SOURCE_DATE_EPOCH is {text[:40]!r}", why="expected seconds since 1970, a whole number")
    return int(text)


def timestamp(epoch: int | None) -> str:
    """Return the time for the receipt, UTC and ISO 8601: SOURCE_DATE_EPOCH where it is set."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
