"""What was applied to a tree, in which order, and what every touched file was before: the receipt and its file."""

from __future__ import annotations

import enum
import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from patchkit.errors import TreeChangedError, UnsafePathError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.tree import FileState, Kind, path_of

SCHEMA = 2
"""2: pristine copies lie side by side, see state.pristine_name."""
_MODES = 0o7777
LARGEST_RECEIPT = 256 << 20
_KINDS = {kind.value: kind for kind in (Kind.FILE, Kind.SYMLINK)}
_STATE = compile_lazily(r"(file|symlink) ([0-7]{1,4}) ([0-9a-f]{64})")
_SHA256 = compile_lazily(r"[0-9a-f]{64}")
_Part = TypeVar("_Part")


class Origin(enum.Enum):
    """Where a layer's patches come from."""

    SHIPPED = "shipped"
    USER = "user"
    AD_HOC = "ad hoc"


@dataclass(frozen=True, kw_only=True, slots=True)
class AppliedPatch:
    """One patch of a layer, as it was applied or left out.

    `sha256` names its bytes below `.patchkit/<engine>/patches/`. `mapping` says in words how its names became paths;
    `paths` holds, per file of the patch, the old and the new path below the root ("" for none: nothing there before,
    nothing there after, or, both empty, not in this tree), so that the stack is rendered again without asking the tree.
    `lines` holds, per file of the patch, the line at which each hunk was placed: the patch as it stands in the tree.
    `enabled` is False when a toggle or Retires-When left it out (`reason` says which).
    """

    name: str
    sha256: str
    mapping: str
    paths: tuple[tuple[str, str], ...]
    lines: tuple[tuple[int, ...], ...]
    reverse: bool
    config: str
    enabled: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AppliedLayer:
    """One layer of the stack. `number` counts from 1 and stays with the layer when lower ones are taken out."""

    number: int
    origin: Origin
    name: str
    patches: tuple[AppliedPatch, ...]
    locked: bool
    applied_at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TouchedFile:
    """A file that the stack changes: as it was, and as patchkit left it. None: it was, or is, not there."""

    path: PurePosixPath
    pristine: FileState | None
    current: FileState | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """The state of a patched tree, stored as `.patchkit/<engine>/receipt.json`.

    `distribution` is the dist-info directory's name and `record_sha256` the digest of its RECORD as patchkit left it:
    both "" for a tree without one. `directories` are those that patchkit made and removes again; `emptied` those that
    went, with their modes, because the stack deletes the last file in them (filled in by `commit`). `configuration` is
    what was asked for, `resolved` what all symbols of the Kconfig came to (name, kind, value), `needs` which gate is
    never y without which other; () without a Kconfig. `guards` are the guarded files, each with the digest of what its
    content was made of, but for the values.
    Times are UTC, ISO 8601, taken from SOURCE_DATE_EPOCH where it is set.
    """

    engine: str
    version: str
    distribution: str
    record_sha256: str
    layers: tuple[AppliedLayer, ...]
    configuration: tuple[tuple[str, str], ...]
    files: tuple[TouchedFile, ...]
    directories: tuple[PurePosixPath, ...]
    plan_sha256: str
    tool_version: str
    emptied: tuple[tuple[PurePosixPath, int], ...] = ()
    resolved: tuple[tuple[str, str, str], ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    guards: tuple[tuple[str, str], ...] = ()


def render_receipt(receipt: Receipt) -> bytes:
    """Return the receipt's file: JSON, a line for each file, patch and directory."""
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "engine": receipt.engine,
        "version": receipt.version,
        "distribution": receipt.distribution,
        "record_sha256": receipt.record_sha256,
        "plan_sha256": receipt.plan_sha256,
        "tool_version": receipt.tool_version,
        "configuration": receipt.configuration,
    }
    lists: dict[str, list[Any]] = {
        "layers": [_layer_fields(layer) for layer in receipt.layers],
        "files": [(str(file.path), render_state(file.pristine), render_state(file.current)) for file in receipt.files],
        "directories": [str(path) for path in receipt.directories],
        "emptied": [(str(path), f"{mode:o}") for path, mode in receipt.emptied],
    }
    if receipt.resolved:
        lists["resolved"] = list(receipt.resolved)
    lists |= {name: list(pairs) for name, pairs in (("needs", receipt.needs), ("guards", receipt.guards)) if pairs}
    return render_lines(fields, lists)


def read_receipt(path: Path) -> Receipt:
    """Read and check a receipt's file. FileNotFoundError when there is none, TreeChangedError when it is damaged."""
    return read_checked(path, "receipt", _parse_receipt)


def render_lines(fields: Mapping[str, Any], lists: Mapping[str, list[Any]]) -> bytes:
    """Render a JSON object for machines that people can still read: an item of a list a line."""
    encode = json.JSONEncoder(check_circular=False).encode  # the C encoder, made once
    parts = [f" {encode(name)}: {encode(value)}" for name, value in fields.items()]
    parts += [
        f" {encode(name)}: [{','.join(f'{chr(10)}  {encode(item)}' for item in items)}]"
        for name, items in lists.items()
    ]
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode("ascii")


def read_checked(path: Path, name: str, parse: Callable[[Any], _Part]) -> _Part:
    """Read a JSON file of the state directory; whatever is wrong with it is one error that says so."""
    try:
        fields = _decode(read_stored(path, LARGEST_RECEIPT))
        _require_schema(fields["schema"], path, name)
        return parse(fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, UnsafePathError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise TreeChangedError(
            f"the {name} {path} is damaged",
            why=f"  {reason}",
            hint="bring it back from a copy, or reinstall the engine and remove its directory below .patchkit",
        ) from error


def read_stored(path: Path, largest: int) -> bytes:
    """Read a file of the state directory. ValueError for what is none, or larger than any that patchkit writes."""
    try:
        # O_NONBLOCK: a fifo in its place must not hold us.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a symlink, a socket
            raise ValueError("it is not a file") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a file")
        with open(descriptor, "rb", closefd=False) as file:
            raw = file.read(largest + 1)
    finally:
        os.close(descriptor)
    if len(raw) > largest:
        raise ValueError("it is larger than any that patchkit writes")
    return raw


def _decode(raw: bytes) -> dict[str, Any]:
    fields = json.loads(raw)
    if not isinstance(fields, dict):
        raise TypeError("it is not a JSON object")
    return fields


def _require_schema(schema: object, path: Path, name: str) -> None:
    if schema == SCHEMA:
        return
    if type(schema) is not int:
        raise ValueError(f"its schema is {schema!r}, this patchkit reads {SCHEMA}")
    older = schema < SCHEMA
    raise TreeChangedError(
        f"the {name} {path} was written by {'an older' if older else 'a newer'} patchkit",
        why=f"  its schema is {schema}, this patchkit reads {SCHEMA}",
        hint="revert with the patchkit that wrote it, then apply with this one" if older else "use one as new as that",
    )


def render_state(state: FileState | None) -> str | None:
    """Return `file 644 <sha256>`, None for absence: a directory in a file's place is an absent file."""
    return (
        None if state is None or state.kind is Kind.DIRECTORY else f"{state.kind.value} {state.mode:o} {state.sha256}"
    )


def parse_state(text: Any) -> FileState | None:
    """Read what render_state wrote; ValueError or TypeError when it is something else."""
    if text is None:
        return None
    match = _STATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a file state")
    return FileState(kind=_KINDS[match[1]], mode=int(match[2], 8), sha256=match[3])


def parse_path(text: Any) -> PurePosixPath:
    """Return a stored path, which must stay in the tree and out of .git and .patchkit."""
    path = path_of(_text(text))
    parts = path.parts
    if not parts or path.is_absolute() or ".." in parts or "\0" in text or str(path) != text:
        raise UnsafePathError(f"{text!r} is not a path in the tree")
    for part in parts:
        if part.lower() in (".git", ".patchkit"):
            raise UnsafePathError(f"{text!r} leads into {part}")
    return path


def _layer_fields(layer: AppliedLayer) -> dict[str, Any]:
    return {
        "number": layer.number,
        "origin": layer.origin.value,
        "name": layer.name,
        "locked": layer.locked,
        "applied_at": layer.applied_at,
        "patches": [_patch_fields(patch) for patch in layer.patches],
    }


def _patch_fields(patch: AppliedPatch) -> dict[str, Any]:
    return {name: getattr(patch, name) for name in AppliedPatch.__slots__}


def _parse_receipt(fields: dict[str, Any]) -> Receipt:
    return Receipt(
        engine=_text(fields["engine"]),
        version=_text(fields["version"]),
        distribution=_text(fields["distribution"]),
        record_sha256=_digest(fields["record_sha256"]),
        layers=tuple(_parse_layer(layer) for layer in fields["layers"]),
        configuration=tuple((_text(name), _text(value)) for name, value in fields["configuration"]),
        files=tuple(
            TouchedFile(path=parse_path(path), pristine=parse_state(pristine), current=parse_state(current))
            for path, pristine, current in fields["files"]
        ),
        directories=tuple(parse_path(path) for path in fields["directories"]),
        plan_sha256=_digest(fields["plan_sha256"]),
        tool_version=_text(fields["tool_version"]),
        emptied=tuple((parse_path(path), _mode(mode)) for path, mode in fields["emptied"]),
        resolved=tuple((_text(name), _text(kind), _text(value)) for name, kind, value in fields.get("resolved", ())),
        needs=tuple((_text(name), _text(needed)) for name, needed in fields.get("needs", ())),
        guards=tuple((str(parse_path(path)), _digest(made_of)) for path, made_of in fields.get("guards", ())),
    )


def _parse_layer(fields: Any) -> AppliedLayer:
    number, locked = fields["number"], fields["locked"]
    if type(number) is not int or number < 1 or type(locked) is not bool:
        raise ValueError("a layer has a number from 1 and `locked` is true or false")
    return AppliedLayer(
        number=number,
        origin=Origin(fields["origin"]),
        name=_text(fields["name"]),
        patches=tuple(_parse_patch(patch) for patch in fields["patches"]),
        locked=locked,
        applied_at=_text(fields["applied_at"]),
    )


def _parse_patch(fields: Any) -> AppliedPatch:
    reverse, enabled = fields["reverse"], fields["enabled"]
    if type(reverse) is not bool or type(enabled) is not bool or not fields["sha256"]:
        raise ValueError("a patch has a sha256, and `reverse` and `enabled` are true or false")
    return AppliedPatch(
        name=_text(fields["name"]),
        sha256=_digest(fields["sha256"]),
        mapping=_text(fields["mapping"]),
        paths=tuple((_optional_path(old), _optional_path(new)) for old, new in fields["paths"]),
        lines=tuple(tuple(_number(line) for line in hunks) for hunks in fields["lines"]),
        reverse=reverse,
        config=_text(fields["config"]),
        enabled=enabled,
        reason=_text(fields["reason"]),
    )


def _optional_path(text: Any) -> str:
    return "" if text == "" else str(parse_path(text))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a number")
    return value


def _digest(value: Any) -> str:
    if value != "" and not _SHA256.fullmatch(_text(value)):
        raise ValueError(f"{value!r} is not a sha256")
    return str(value)


def _mode(value: Any) -> int:
    mode = int(_text(value), 8)
    if not 0 <= mode <= _MODES:
        raise ValueError(f"{value!r} is not a mode")
    return mode
