"""From the names in a patch to paths below the root: strip level and prefix, found in the tree and said in words.

Names come in many shapes: `a/python/sglang/srt/x.py` for a wheel that has `sglang/srt/x.py`, `a/entrypoints/llm.py`
relative to the package, `b/usr/local/lib/python3.12/dist-packages/vllm/x.py`, `../../../sglang/python/sglang/x.py`.
One mapping holds for a whole patch: so many components are removed, one prefix is put before the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import PurePosixPath

from patchkit.diff.model import Change, FilePatch, Patch
from patchkit.diff.names import moved_from
from patchkit.errors import RefusedError, UnsafePathError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass, replace
from patchkit.target import Layout, TargetTree
from patchkit.tree import path_of

HARMLESS = "not in this tree: harmless"
UNKNOWN = "not in this tree: unknown to this engine"
NATIVE = "not in this tree: needs a build"

Exists = Callable[[str], bool]
"""Tells whether a file or a link stands at a path below the root."""

_SLASHES = compile_lazily(r"/+")
_PREFIXES = frozenset({"a", "b", "c", "i", "o", "w", "1", "2", "orig", "new", "old"})
_REFUSED = compile_lazily(r"[\x00\n\r]")
# Where a package lies in its repository, in a site directory, or at the top.
_LEADS_IN = compile_lazily(r"^$|(^|/)(python|src|(site|dist)-packages)/$")
_NEVER = frozenset({".git", ".patchkit"})
_PLAIN = compile_lazily(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)  # no part of it begins with a dot
_DEPENDENCIES = compile_lazily(
    r"(^|/)(pyproject\.toml|setup\.(py|cfg)|(requirements|constraints)[^/]*(/[^/]*)?|uv\.lock)$"
)
_HARMLESS = compile_lazily(
    r"(^|/)(tests?|docs?|benchmarks?|examples?|scripts|tools|docker|\.github|\.buildkite|\.ci|assets|3rdparty)/"
    r"|\.(md|rst|txt|ya?ml|toml|cfg|json|ipynb|sh|jinja|png|svg)$|(^|/)(Dockerfile[^/]*|Makefile|\.[^/]+|LICENSE|MANIFEST\.in)$"
)
_NATIVE = compile_lazily(
    r"(^|/)(csrc|cmake|sgl-kernel|sgl-router|rust)/|(^|/)(CMakeLists\.txt|Cargo\.(toml|lock))$"
    r"|\.(cu|cuh|c|cc|cpp|cxx|h|hpp|hip|rs|cmake)$"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PathMap:
    """How names become paths: remove `old_strip` (`new_strip`) components, then put `prefix` before.

    `kept` are the removed parts that lead into the package, None when every name is in the tree: a name with another
    removed part (`a/benchmark/sglang/x.py` beside `a/python/sglang/y.py`) is outside of the tree.
    """

    old_strip: int
    new_strip: int
    prefix: str
    kept: frozenset[str] | None

    @property
    def words(self) -> str:
        """Say what was chosen."""
        strip = f"-p{self.old_strip}" if self.old_strip == self.new_strip else f"-p{self.old_strip}/-p{self.new_strip}"
        return f"{strip}, below {self.prefix}" if self.prefix else strip


@lru_cache(maxsize=1 << 13)  # a series names a file again and again, and so does every try of a mapping
def strip_name(name: str, components: int) -> tuple[str, str] | None:
    """Split a name after so many leading components, as GNU patch counts them; None when it has too few.

    A run of slashes counts once. Returns the removed part and the rest.
    """
    place = 0
    for _ in range(components):
        found = _SLASHES.search(name, place)
        if found is None or found.end() == len(name):
            return None
        place = found.end()
    return name[:place], name[place:]


def safe_path(name: str, *, shown: str) -> PurePosixPath:
    """Return the path that a stripped name stands for, or refuse it; see `_checked_name`."""
    return path_of(_safe_name(name, shown=shown))


def _safe_name(name: str, *, shown: str) -> str:
    """Return a stripped name as it is to be used, or refuse it; see `_checked_name`."""
    return name if _PLAIN.fullmatch(name) else _checked_name(name, shown=shown)


def _checked_name(name: str, *, shown: str) -> str:
    """Return a stripped name without empty parts, or refuse it.

    Refused are absolute names, `..`, line ends in a name, empty names, and anything below .git or .patchkit.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    why = ""
    if _REFUSED.search(name):
        why = "the name holds a line end or a NUL"
    elif name.startswith("/"):
        why = "the name is absolute; a strip level that makes it relative may help (--strip)"
    elif ".." in parts:
        why = "the name leaves the tree through `..`"
    elif not parts:
        why = "the name is empty"
    elif any(part.lower().rstrip(". ") in _NEVER for part in parts):
        why = "nothing below .git or .patchkit is ever written"
    if why:
        raise UnsafePathError(f"{shown!r}: refused name in the patch", why=why)
    return "/".join(parts)


def find_map(patch: Patch, tree: TargetTree, exists: Exists, *, strip: int | None) -> PathMap:
    """Find how the names of a patch become paths of the tree.

    `strip` fixes the strip level, as `patch -pN`; the prefix is still looked for in an engine's tree. Raises
    RefusedError when two mappings fit equally well, or when nothing tells which is meant.
    """
    candidates = list(_candidates(patch, tree, strip=strip))
    first = candidates[0] if candidates and strip is not None else None
    if first is not None and len({place for place, _ in _hits(patch, first, exists, asked=True)}) == len(patch.files):
        return _with_kept(patch, first, tree, exists)  # no other prefix can fit better
    scored = [(len(_hits(patch, path_map, exists, asked=strip is not None)), path_map) for path_map in candidates]
    best = max((hits for hits, _ in scored), default=0)
    if best == 0:
        return _without_evidence(patch, tree, exists, strip=strip)
    chosen = _preferred(patch, [path_map for hits, path_map in scored if hits == best], exists)
    return _with_kept(patch, chosen, tree, exists)


def file_paths(file: FilePatch, path_map: PathMap, exists: Exists) -> tuple[str, str]:
    """Return the old and the new path of one file patch, "" for none (see AppliedPatch.paths).

    Where a traditional header names two files (`f.orig` and `f`), the one that is in the tree is meant; when both are,
    the shorter name, as git decides it.
    """
    old_name, new_name = _names(file, path_map.old_strip)
    old = _mapped(old_name, path_map.old_strip, path_map)
    new = _mapped(new_name, path_map.new_strip, path_map)
    if file.change is Change.CREATE:
        return "", new
    if file.change is Change.DELETE:
        return old, ""
    if file.change in (Change.RENAME, Change.COPY) or file.git:
        return (old, new) if old and new else ("", "")
    one = _one_name(old, new, exists)
    return one, one


def outside_note(name: str) -> str:
    """Say what it means that a file of a patch is not in this tree: harmless, needs a build, changes dependencies."""
    if is_native(name):
        return NATIVE
    if _DEPENDENCIES.search(name):
        return "changes dependencies: reinstall"
    return HARMLESS if _HARMLESS.search(name) else UNKNOWN


def is_native(name: str) -> bool:
    """Tell whether a file of a patch is compiled."""
    return bool(_NATIVE.search(name)) and not _DEPENDENCIES.search(name)


def _names(file: FilePatch, strip: int) -> tuple[str | None, str | None]:
    """Return both names; those of a rename or copy at -p0 without `a/` and `b/`, where `rename from` has none."""
    names = (file.old_name, file.new_name)
    if strip or file.change not in (Change.RENAME, Change.COPY) or moved_from(file.header) == file.old_name:
        return names
    split = [name.partition("/") for name in names if name]
    return (split[0][2], split[1][2]) if all(first in _PREFIXES and rest for first, _, rest in split) else names


def _one_name(old: str, new: str, exists: Exists) -> str:
    if not old or not new or old == new:
        return new or old
    there = [name for name in (old, new) if exists(name)]
    if len(there) == 1:
        return there[0]
    return old if len(old) <= len(new) else new


def _mapped(name: str | None, strip: int, path_map: PathMap) -> str:
    if name is None:
        return ""
    split = strip_name(name, strip)
    if split is None:
        return ""
    if path_map.kept is not None and _plain_prefix(split[0]) not in path_map.kept:
        return ""
    return _safe_name(path_map.prefix + split[1], shown=name)


def _plain_prefix(removed: str) -> str:
    """Forget git's one-letter side prefix, so that `a/python/` and `b/python/` are the same."""
    first, _, rest = removed.partition("/")
    return rest if first in _PREFIXES else removed


def _candidates(patch: Patch, tree: TargetTree, *, strip: int | None) -> Iterator[PathMap]:
    names = [name for file in patch.files for name in (file.old_name, file.new_name) if name]
    levels = range(max((name.count("/") for name in names), default=0) + 1) if strip is None else (strip,)
    same = all(file.git for file in patch.files) or strip is not None or not _sides_differ(patch)
    for prefix in _possible_prefixes(tree):
        for old in levels:
            for new in (old,) if same else levels:
                yield PathMap(old_strip=old, new_strip=new, prefix=prefix, kept=None)


def _sides_differ(patch: Patch) -> bool:
    return any(
        file.old_name and file.new_name and file.old_name.count("/") != file.new_name.count("/") for file in patch.files
    )


def _possible_prefixes(tree: TargetTree) -> tuple[str, ...]:
    if tree.layout is Layout.PLAIN:
        return ("",)
    parent = "" if str(tree.package.parent) == "." else f"{tree.package.parent}/"
    package = f"{tree.package}/"
    deeper = (f"{package}srt/",) if tree.engine == "sglang" else ()
    return tuple(dict.fromkeys(("", parent, package, *deeper)))


def _hits(patch: Patch, path_map: PathMap, exists: Exists, *, asked: bool) -> list[tuple[int, str]]:
    """Return what a mapping finds in the tree, with the place of the file in the patch."""
    return [
        (place, path)
        for place, file in enumerate(patch.files)
        for path in map(_plain, _looked_for(file, path_map, asked=asked))
        if exists(path)
    ]


def _plain(path: str) -> str:
    return str(path_of(path))


def _looked_for(file: FilePatch, path_map: PathMap, *, asked: bool) -> Iterator[str]:
    sides = [(_names(file, path_map.old_strip)[0], path_map.old_strip)] if file.change is not Change.CREATE else []
    if not file.git and file.change is Change.MODIFY and file.old_name != file.new_name:
        sides.append((file.new_name, path_map.new_strip))
    for name, strip in sides:
        split = strip_name(name, strip) if name else None
        if split is None or ".." in split[1].split("/") or split[1].startswith("/"):
            continue
        if asked or _may_stand_for(split[0], path_map.prefix):
            yield path_map.prefix + split[1]


def _may_stand_for(removed: str, prefix: str) -> bool:
    """Tell whether a prefix may replace a removed part: `tests/config.py` is not the package's `config.py`."""
    removed = _plain_prefix(removed)
    if not prefix or not removed.strip("./") or removed.endswith(prefix):
        return True
    copy_of_package = re.compile(rf"(^|/){re.escape(PurePosixPath(prefix).name)}[.~-][^/]*/$")
    return bool(copy_of_package.search(removed) or (_LEADS_IN.search(removed) and _LEADS_IN.search(prefix)))


def _preferred(patch: Patch, fitting: list[PathMap], exists: Exists) -> PathMap:
    if len(fitting) == 1:
        return fitting[0]
    usual = [path_map for path_map in fitting if path_map.old_strip == path_map.new_strip == 1 and not path_map.prefix]
    if usual and _side_prefixed(patch):
        return usual[0]
    meanings = {tuple(_hits(patch, path_map, exists, asked=True)): path_map for path_map in reversed(fitting)}
    if len(meanings) == 1:
        return fitting[0]
    choices = ", ".join(path_map.words for path_map in list(meanings.values())[:4])
    raise RefusedError(
        f"{patch.source}: the names in it fit this tree in several ways",
        why=f"these fit equally well: {choices}",
        hint="say which with --strip N",
    )


def _side_prefixed(patch: Patch) -> bool:
    names = [name for file in patch.files for name in (file.old_name, file.new_name) if name]
    return all(name.split("/", 1)[0] in _PREFIXES for name in names)


def _has_sides(patch: Patch, exists: Exists) -> bool:
    """Tell whether the tree really has an `a/` or `b/` with a file that the patch speaks of."""
    names = [name for file in patch.files for name in (file.old_name, file.new_name) if name]
    return any(exists(side + name.partition("/")[2]) for name in names for side in ("a/", "b/"))


def _without_evidence(patch: Patch, tree: TargetTree, exists: Exists, *, strip: int | None) -> PathMap:
    """Choose for a patch none of whose preimages is in the tree: it creates files, or it is for another tree."""
    if strip is not None:
        return _with_kept(patch, PathMap(old_strip=strip, new_strip=strip, prefix="", kept=None), tree, exists)
    if tree.layout is not Layout.PLAIN:
        return _into_package(patch, tree)
    if _side_prefixed(patch) and not _has_sides(patch, exists):
        return PathMap(old_strip=1, new_strip=1, prefix="", kept=None)
    names = ", ".join(repr(file.old_name or file.new_name) for file in patch.files[:3])
    raise RefusedError(
        f"{patch.source}: no file that it changes is in {tree.root}",
        why=f"looked for {names} with every strip level",
        hint="name the strip level with --strip N, or another tree with --root DIR",
    )


def _into_package(patch: Patch, tree: TargetTree) -> PathMap:
    """Map the names that have the package's own path in them; in an installed tree the others are outside."""
    marker = f"/{tree.package.name}/"
    parts: Counter[str] = Counter()
    for file in patch.files:
        name = file.new_name or file.old_name or ""
        place = f"/{name}".find(marker)
        if place >= 0:
            parts[name[:place]] += 1
    parent = "" if str(tree.package.parent) == "." else f"{tree.package.parent}/"
    if not parts:
        strip = 1 if tree.installed or _side_prefixed(patch) else 0
        return PathMap(old_strip=strip, new_strip=strip, prefix="", kept=None)
    removed = max(parts, key=lambda part: (bool(_LEADS_IN.search(_plain_prefix(part))), parts[part], part))
    strip = removed.count("/")
    if not tree.installed and _plain_prefix(removed) == parent:
        strip, parent = strip - parent.count("/"), ""
    kept = frozenset({_plain_prefix(removed)}) if tree.installed else None
    return PathMap(old_strip=strip, new_strip=strip, prefix=parent, kept=kept)


def _with_kept(patch: Patch, path_map: PathMap, tree: TargetTree, exists: Exists) -> PathMap:
    """Remember which removed parts lead into the package, so that a look-alike elsewhere is not taken for it."""
    if not tree.installed or path_map.old_strip + path_map.new_strip <= 2:  # noqa: PLR2004 -- one component a side
        return path_map
    kept = frozenset(
        _plain_prefix(split[0])
        for file in patch.files
        for split in _splits(file, path_map)
        if exists(path_map.prefix + split[1])
    )
    kept = frozenset(filter(_LEADS_IN.search, kept)) or kept
    return replace(path_map, kept=kept) if kept else path_map


def _splits(file: FilePatch, path_map: PathMap) -> Iterable[tuple[str, str]]:
    for name, strip in ((file.old_name, path_map.old_strip), (file.new_name, path_map.new_strip)):
        split = strip_name(name, strip) if name else None
        if split is not None:
            yield split
