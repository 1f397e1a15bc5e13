"""What a resolved configuration leaves in a tree: the module that patched code imports, and imports that are supplied.

Pure: the files that a plan makes go in and come out. The files below `.patchkit/<engine>/` are bytes here too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from pathlib import PurePosixPath

from patchkit.config.autoconf import MODULE, is_generated, render_header, render_make, render_python
from patchkit.config.configuration import HEAD, KEPT, Configuration, Value, setting_line
from patchkit.config.dotconfig import ValueKind
from patchkit.config.supply import C_SUFFIXES, supply_import, supply_include
from patchkit.receipt import Receipt
from patchkit.record import dataclass
from patchkit.target import TargetTree
from patchkit.travelling import PLACE
from patchkit.tree import Kind, TreeEntry

Final = MutableMapping[PurePosixPath, "TreeEntry | None"]
Pristine = Callable[[PurePosixPath], "TreeEntry | None"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Generated:
    """A configuration to be written: `state` are the files of the state directory by name, None to leave them.

    `needs` are pairs of gates: the first is never y without the second.
    """

    configuration: Configuration
    state: tuple[tuple[str, bytes], ...] | None
    needs: tuple[tuple[str, str], ...] = ()

    @property
    def resolved(self) -> tuple[tuple[str, str, str], ...]:
        """The configuration as a receipt keeps it."""
        return tuple((value.symbol, value.kind.value, value.text) for value in self.configuration.values)


def module_path(tree: TargetTree) -> PurePosixPath:
    """Return where autoconf.py lies below the root."""
    return tree.package / PLACE / f"{MODULE}.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class Definitions:
    """What the Kconfig files of one series are: their sha256, and the symbols that they and its patches define."""

    kconfigs: tuple[str, ...]
    symbols: tuple[str, ...]


def state_files(
    tree: TargetTree, configuration: Configuration, written: Collection[str], definitions: Mapping[str, Definitions]
) -> tuple[tuple[str, bytes], ...]:
    """Return the files of the state directory.

    `written` are the symbols that have a line in the .config, `definitions` those of each layer by its name. They are
    the same whichever series are named, and name no directory: a tree that is patched from elsewhere is the same.
    """
    files = {
        ".config": HEAD.encode() + render_settings(configuration.values, written),
        "auto.conf": render_make(configuration),
        "autoconf.h": render_header(configuration),
    }
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest = {
        "schema": 1,
        "engine": tree.engine,
        "version": tree.version,
        "layers": {
            name: {"kconfig": list(one.kconfigs), "symbols": list(one.symbols)}
            for name, one in sorted(definitions.items())
        },
        "files": {**digests, str(module_path(tree)): hashlib.sha256(render_python(configuration)).hexdigest()},
    }
    return (*files.items(), ("manifest.json", (json.dumps(manifest, indent=1) + "\n").encode()))


def render_settings(values: Iterable[Value], written: Collection[str]) -> bytes:
    """Return the lines of these symbols as in a .config, in the order of the values."""
    lines = (f"{setting_line(value)}\n" for value in values if value.symbol in written)
    return "".join(lines).encode("utf-8", "surrogateescape")


def generated_again(receipt: Receipt) -> Generated | None:
    """Return what a receipt says was generated, to be written as it is; None for nothing."""
    if not receipt.resolved:
        return None
    values = tuple(Value(symbol=name, kind=ValueKind(kind), text=text) for name, kind, text in receipt.resolved)
    return Generated(
        configuration=Configuration(values=values, origins=(KEPT,) * len(values)),
        state=None,
        needs=receipt.needs,
    )


def put_generated(
    final: Final,
    generated: Generated,
    tree: TargetTree,
    pristine: Pristine,
    supplied: Collection[PurePosixPath] = (),
) -> Iterator[str]:
    """Add the module to the files that a plan makes and supply imports in those that it changes; yield problems.

    `pristine` says what stood at a path before patchkit; `supplied` are files whose Python imports all that it reads.
    """
    symbols = generated.configuration.symbols
    for path, entry in list(final.items()):
        if entry is None or entry.kind is not Kind.FILE or b"CONFIG_" not in entry.content:
            continue
        if entry == pristine(path) or (path.suffix == ".py" and path in supplied):
            continue
        try:
            content = _supplied(path, entry.content, tree, symbols)
        except (SyntaxError, ValueError) as error:
            yield f"{path}: reads CONFIG_ names, and no import can be supplied ({error}); import them in the patch"
            continue
        if content is not entry.content:
            final[path] = TreeEntry(kind=entry.kind, mode=entry.mode, content=content)
    place = module_path(tree)
    for there, who in (
        (pristine(place), "the release has a file there"),
        (final.get(place), "a patch makes this file"),
    ):
        if there is not None and not is_generated(there.content):
            yield f"{place}: {who}: its name is patchkit's"
            return
    holder = place.parent / "__init__.py"
    if final.get(holder) is None and pristine(holder) is None:
        final[holder] = TreeEntry(kind=Kind.FILE, mode=0o644, content=b"")
    final[place] = TreeEntry(kind=Kind.FILE, mode=0o644, content=render_python(generated.configuration))


def _supplied(path: PurePosixPath, content: bytes, tree: TargetTree, symbols: frozenset[str]) -> bytes:
    if path.suffix == ".py":
        return supply_import(content, f"{tree.package.name}.{PLACE}.{MODULE}", symbols)
    if path.suffix in C_SUFFIXES:
        up = "../" * (len(path.parts) - 1)
        return supply_include(content, f"{up}.patchkit/{tree.engine}/{MODULE}.h", symbols)
    return content
