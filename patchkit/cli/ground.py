"""What the series commands share: the releases they look at, the header of a new patch, errors of writing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

import click

from patchkit.archive import Artifact, open_artifact
from patchkit.author import Letterhead
from patchkit.cli.options import Choice, names_a_tree, select_tree, source_date_epoch, tree_options
from patchkit.errors import RefusedError, UsageError
from patchkit.locking import installed_artifact
from patchkit.output import Output
from patchkit.quoting import typed
from patchkit.record import replace
from patchkit.resources import named_directories
from patchkit.session import open_session

_Function = Callable[..., Any]
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def own_patches() -> Path:
    """Return the one directory that [tool.patchkit] in pyproject.toml names, for who gives no --patches."""
    found = named_directories(Path.cwd())
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"which of {len(found)} directories of series?" if found else "which series?",
        why="\n".join(map(str, found)) or "no --patches, and no [tool.patchkit] patches in a pyproject.toml",
        hint="name the directory of your series with --patches",
    )


def _given_or_own(_context: click.Context, _parameter: click.Parameter, given: Path | None) -> Path:
    return given or own_patches()


patches_option = click.option(
    "--patches",
    type=click.Path(file_okay=False, path_type=Path),
    callback=_given_or_own,
    help="The directory of your series, or one with ENGINE/VERSION/ below it; pyproject.toml's without.",
)
work_option = click.option(
    "--work", required=True, type=click.Path(file_okay=False, path_type=Path), help="The directory to edit in."
)


on_shipped_option = click.option(
    "--on-shipped", is_flag=True, help="Begin a series that is cut on top of the shipped one; it remembers that."
)


def ground_options(function: _Function) -> _Function:
    """Add the tree options and --artifact; the function gets both as `choice` and `artifact`."""

    @tree_options
    @click.option(
        "--artifact", multiple=True, type=_FILE, metavar="WHEEL", help="A released wheel, read as it is. Repeatable."
    )
    @wraps(function)
    def with_artifact(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return with_artifact


def typed_release(choice: Choice, artifacts: tuple[Path, ...] = ()) -> str:
    """Return the options that name a release, as they were typed; a downloaded one is named where it lies now."""
    named = {"--target": choice.target, "--root": choice.fetch or choice.root, "--python": choice.python}
    options = [word for option, value in named.items() if value for word in (option, value)]
    return typed(*options, *(word for path in artifacts for word in ("--artifact", path)))


def free_work(patch: str) -> str:
    """Return a name for a patch's work directory that is not taken here."""
    stem = PurePosixPath(patch).name.partition(".")[0]
    names = chain((stem,), (f"{stem}-{number}" for number in count(2)))
    return next(name for name in names if not os.path.lexists(name))


@contextmanager
def open_grounds(choice: Choice, artifacts: tuple[Path, ...], output: Output) -> Iterator[tuple[Artifact, ...]]:
    """Open the wheels and the tree that the options name, the tree as it was before patchkit; locks last as long."""
    with ExitStack() as opened:
        found = []
        for path in artifacts:
            output.progress(f"reading {path.name}")
            found.append(open_artifact(path))
        if names_a_tree(choice):
            tree = select_tree(choice, output)
            session = opened.enter_context(open_session(tree, write=False, say=output.note))
            found.append(installed_artifact(session))
        yield tuple(found)


@contextmanager
def open_ground(choice: Choice, artifacts: tuple[Path, ...], output: Output, *, source: str = "") -> Iterator[Artifact]:
    """Open the one release that the options name, else `source` (a wheel or the root of a tree)."""
    if source and not artifacts and not names_a_tree(choice):
        place = Path(source)
        if not place.exists():
            hint = "name the release with --artifact, --target or --root"
            raise UsageError(f"{source}: not there any more", why="the work directory was made from it", hint=hint)
        artifacts, choice = ((), replace(choice, root=place)) if place.is_dir() else ((place,), choice)
    with open_grounds(choice, artifacts, output) as found:
        if len(found) != 1:
            hint = "give --artifact WHEEL, or --target ENGINE==VERSION, or --root DIR"
            raise UsageError(f"{len(found) or 'no'} releases named, expected one", hint=hint)
        yield found[0]


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn what the system refuses into an error that names the place."""
    try:
        yield
    except OSError as error:
        where = error.filename or place
        raise RefusedError(
            f"cannot write {place}",
            why=f"{where}: {error.strerror or error}",
            hint="make it writable for you, or copy the series and name the copy with --patches",
        ) from error


def make_letterhead(subject: str, author: str, trailers: tuple[tuple[str, str], ...] = ()) -> Letterhead:
    """Return what a new header says: who git would say without --author, and when, by SOURCE_DATE_EPOCH if set."""
    from datetime import datetime, timezone

    epoch = source_date_epoch()
    date = datetime.fromtimestamp(time.time() if epoch is None else epoch, tz=timezone.utc)
    return Letterhead(
        subject=subject, author=author or _git_author(), date=date.replace(microsecond=0), trailers=trailers
    )


def _git_author() -> str:
    """Ask git for a name and a mail address; who has no git is `user <user@localhost>`, as git would call him."""
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    name = os.environ.get("GIT_AUTHOR_NAME") or _git_setting("user.name") or user
    mail = os.environ.get("GIT_AUTHOR_EMAIL") or _git_setting("user.email") or f"{user}@localhost"
    return f"{name} <{mail}>"


def _git_setting(name: str) -> str:
    from patchkit.process import run_child

    try:
        child = run_child(["git", "config", "--get", name], timeout=10)
    except RefusedError:
        return ""
    return child.stdout.decode("utf-8", "replace").strip() if child.status == 0 else ""
