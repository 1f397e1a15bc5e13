"""The tree that a patch was cut against, seen with the paths of the tree that it goes onto (`--base`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from patchkit.errors import TargetError
from patchkit.target import Layout, TargetTree, find_targets
from patchkit.tree import Entries, TreeEntry, open_entries


class MovedEntries(Mapping[PurePosixPath, TreeEntry]):
    """A tree whose package `there` answers to the name `here`; what lies beside the package is not in it."""

    __slots__ = ("_here", "_there", "_tree")

    def __init__(self, tree: Entries, *, here: PurePosixPath, there: PurePosixPath) -> None:
        self._tree = tree
        self._here = here
        self._there = there

    def __getitem__(self, path: PurePosixPath) -> TreeEntry:
        """Return the entry at the place where the other layout has it."""
        if not path.is_relative_to(self._here):
            raise KeyError(path)
        return self._tree[self._there / path.relative_to(self._here)]

    def __iter__(self) -> Iterator[PurePosixPath]:
        """Yield the package's paths, under the name `here`."""
        for path in self._tree:
            if path.is_relative_to(self._there):
                yield self._here / path.relative_to(self._there)

    def __len__(self) -> int:
        """Count the package's paths."""
        return sum(1 for _ in self)


def open_base(directory: Path, tree: TargetTree) -> Entries:
    """Return the tree below `directory` under the paths of `tree`.

    It may be laid out otherwise: a checkout with `python/sglang` for an installed `sglang`, or the package directory
    itself. TargetError where the engine's package is not in it: such a base would prove nothing.
    """
    if tree.layout is Layout.PLAIN or (directory / tree.package).is_dir():
        return open_entries(directory)
    found = [other for other in find_targets(root=directory) if other.engine == tree.engine]
    if len(found) != 1:
        raise TargetError(
            f"--base {directory} has no {tree.package}/",
            why=f"  patches of {tree.engine} are placed by what the base has there"
            + "".join(f"\n  found {other.root / other.package}" for other in found),
            hint="give the directory that holds the package: a checkout, an unpacked wheel or a site-packages",
        )
    base = found[0]
    return MovedEntries(open_entries(base.root), here=tree.package, there=base.package)
