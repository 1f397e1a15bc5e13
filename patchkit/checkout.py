"""A source tree: which checkout an editable install leads to, and which version a tree without dist-info is.

Nothing is run: neither git nor the tree's own code.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from patchkit.engine import ENGINES, normalise_name
from patchkit.environment import directory_names, read_headers, read_small
from patchkit.pattern import compile_lazily
from patchkit.version import read_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from patchkit.engine import Engine
    from patchkit.environment import Distribution

PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "PKG-INFO", ".git")
_VERSION_FILES = ("_version.py", "version.py", "_build_meta.py", "__init__.py")
_ASSIGNMENT = compile_lazily(
    r"""^(?:__version__|version)(?:[ \t]*:[^=\n]*)?[ \t]*=[ \t]*(?:version[ \t]*=[ \t]*)?(["'])([^"'\n]+)\1"""
    r"""[ \t]*(?:#.*)?\r?$""",
    re.MULTILINE,
)
_RELEASE = compile_lazily(
    r"v?((?:\d+!)?\d+(?:\.\d+)+(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?(?:\+[a-z0-9.]+)?)",
    re.IGNORECASE | re.ASCII,
)
_NO_RELEASE = compile_lazily(r"[0.]+(?:\.dev.*|\+.*)?")  # what setuptools-scm writes when it knows nothing
_MAPPING = compile_lazily(r"^MAPPING\b[^=\n]*=[ \t]*(\{[^\n]*\})", re.MULTILINE)
_OBJECT_ID = compile_lazily(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MOST_FILES = 500
_PACKED_REFS = 1 << 24


def is_project(directory: Path) -> bool:
    """Tell whether a directory is the root of a checkout or of an unpacked sdist."""
    return any((directory / name).exists() for name in PROJECT_FILES)


def is_package(directory: Path) -> bool:
    """Tell whether a directory is an engine's package: not a checkout that happens to have the package's name."""
    if not directory.is_dir():
        return False
    return (directory / "__init__.py").is_file() or not (is_project(directory) or (directory / "python").is_dir())


def holds_an_engine(directory: Path) -> bool:
    """Tell whether an engine's package lies in a directory: a checkout with an environment made in it is a checkout."""
    return any(is_package(directory / package) for engine in ENGINES for package in engine.packages)


def link_on_the_way(root: Path, package: str) -> Path | None:
    """Return the first symlink on the way from a root to a package, None when there is none."""
    path = root
    for part in PurePosixPath(package).parts:
        path /= part
        if path.is_symlink():
            return path
    return None


def root_of_package(directory: Path, engine: Engine) -> tuple[Path, PurePosixPath]:
    """Return the root and the package's path below it: a repository's root where one is that many levels up."""
    for package in map(PurePosixPath, engine.source_packages):
        root = directory.parents[len(package.parts) - 1]
        if directory.parts[-len(package.parts) :] == package.parts and (root / ".git").exists():
            return root, package
    return directory.parent, PurePosixPath(directory.name)


def roots_below(directory: Path, engine: Engine) -> list[Path]:
    """Return directories a little below one that is no root, which the user may have meant."""
    sites = [site for place in ("", "lib/python3*/") for site in directory.glob(f"{place}*-packages")]
    below = [directory / name for name in sorted(directory_names(directory))[:_MOST_FILES]]
    return [*sites, *(root for root in below if any(is_package(root / package) for package in engine.packages))]


def editable_package(distribution: Distribution, engine: Engine) -> tuple[Path, str] | None:
    """Return the package's directory in the checkout of an editable install, and which file led there."""
    for source, checkout in _editable_checkouts(distribution, engine):
        for package in (*engine.packages, f"src/{engine.package}"):
            if is_package(checkout / package):
                return (checkout / package).resolve(), source
    return None


def source_version(root: Path, package: PurePosixPath, engine: Engine) -> tuple[str, tuple[str, ...]]:
    """Return the version of a source tree ("" when nothing says it) and where that was read."""
    project = root / package.parent
    tags = _head_tags(_repository(root)) if engine.tagged else ()
    for place, text in _stated_versions(root, project, root / package, engine):
        match = _RELEASE.fullmatch(text)
        if match and not _NO_RELEASE.fullmatch(match[1]):
            evidence = f"{place.relative_to(root)} says {match[1]}"
            if tags and match[1] not in tags:
                return match[1], (evidence, f"the git tag at HEAD says {tags[-1]}: not taken")
            return match[1], (evidence,)
    return (tags[-1], (f"the git tag at HEAD says {tags[-1]}",)) if tags else ("", ())


def _stated_versions(root: Path, project: Path, package: Path, engine: Engine) -> Iterator[tuple[Path, str]]:
    """Yield (file, version) of everything in a source tree that states one, the most trusted first."""
    projects = tuple(dict.fromkeys((project, root)))
    for directory in projects:
        for name in (
            "PKG-INFO",
            *(f"{egg}/PKG-INFO" for egg in directory_names(directory) if egg.endswith(".egg-info")),
        ):
            headers = read_headers(directory / name) or {}
            if normalise_name(headers.get("name", "")) in engine.distributions:
                yield directory / name, headers.get("version", "")
    for name in _VERSION_FILES:
        if match := _ASSIGNMENT.search(read_small(package / name) or ""):
            yield package / name, match[2]
    for directory in projects:
        yield directory / "version.txt", (read_small(directory / "version.txt") or "").strip()


def _editable_checkouts(distribution: Distribution, engine: Engine) -> Iterator[tuple[str, Path]]:
    """Yield (file that says so, directory that may hold the package) in the order of how much each file knows."""
    site = distribution.site
    if distribution.editable is not None:
        yield ("direct_url.json" if distribution.directory else distribution.evidence), distribution.editable
    names = sorted(directory_names(site))
    for name in names:
        if name.startswith("__editable___") and name.endswith("_finder.py"):
            package = _mapped_packages(read_small(site / name) or "").get(engine.package)
            if package is not None:
                yield name, package.parent
    for name in [name for name in names if name.endswith(".pth")][:_MOST_FILES]:
        for line in (read_small(site / name) or "").splitlines():
            if line.strip() and not line.startswith(("#", "import ", "import\t")) and "\0" not in line:
                yield name, site / line.rstrip()


def _mapped_packages(finder: str) -> dict[str, Path]:
    """Read the MAPPING that setuptools writes into the finder of an editable install: a literal, never run."""
    import ast

    match = _MAPPING.search(finder)
    try:
        mapping = ast.literal_eval(match[1]) if match else {}
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return {}
    if not isinstance(mapping, dict):
        return {}
    return {
        name: Path(path)
        for name, path in mapping.items()
        if isinstance(name, str) and isinstance(path, str) and path.startswith("/") and "\0" not in path
    }


def _repository(root: Path) -> Path:
    """Return where the root's own .git would be: never that of a repository which merely encloses the tree."""
    return root.parent if root.name == "python" and not (root / ".git").exists() else root


def _head_tags(repository: Path) -> tuple[str, ...]:
    """Return the releases that tags at HEAD name, lowest first."""
    git, common = _git_directories(repository / ".git")
    packed = _packed_refs(common)
    head = (read_small(git / "HEAD") or "").strip()
    if head.startswith("ref: "):
        name = head[5:]
        head = ((_read_ref(git, name) or _read_ref(common, name)) or packed.get(name, "")).strip()
    if not _OBJECT_ID.fullmatch(head):
        return ()
    tags = {name[10:]: commit for name, commit in packed.items() if name.startswith("refs/tags/")}
    for name in directory_names(common / "refs" / "tags"):
        tags[name] = _commit_of(common, (read_small(common / "refs" / "tags" / name) or "").strip())
    found = [match[1] for name, commit in tags.items() if commit == head and (match := _RELEASE.fullmatch(name))]
    return tuple(found if len(found) < 2 else _in_order(found))  # noqa: PLR2004 - two need an order


def _in_order(texts: list[str]) -> list[str]:
    versions = [(version, text) for text in texts if (version := read_version(text)) is not None]
    return [text for _, text in sorted(versions)]


def _git_directories(dot_git: Path) -> tuple[Path, Path]:
    """Return the git directory of a work tree and the one that holds the refs; they differ in a linked work tree."""
    git = dot_git
    text = read_small(dot_git) or ""
    if text.startswith("gitdir: "):
        git = dot_git.parent / text[8:].strip()
    common = (read_small(git / "commondir") or "").strip()
    return git, git / common if common else git


def _read_ref(git: Path, name: str) -> str | None:
    return read_small(git / name) if name.startswith("refs/") and ".." not in name else None


def _packed_refs(git: Path) -> dict[str, str]:
    """Return ref -> commit; an annotated tag is followed by the commit that it names."""
    refs: dict[str, str] = {}
    last = ""
    for line in (read_small(git / "packed-refs", limit=_PACKED_REFS) or "").splitlines():
        if line.startswith("^") and last:
            refs[last] = line[1:].strip()
        elif not line.startswith("#"):
            commit, _, last = line.partition(" ")
            refs[last] = commit
    return refs


def _commit_of(git: Path, identifier: str) -> str:
    """Return the commit that a tag's object names, or the identifier itself when it is not a loose tag object."""
    import zlib

    if not _OBJECT_ID.fullmatch(identifier):
        return ""
    try:
        with (git / "objects" / identifier[:2] / identifier[2:]).open("rb") as stream:
            start = zlib.decompressobj().decompress(stream.read(4096), 256)
    except (OSError, zlib.error):
        return identifier
    kind, _, body = start.partition(b"\0")
    named = body.partition(b"\n")[0].removeprefix(b"object ").decode("ascii", "replace")
    return named if kind.startswith(b"tag ") else identifier
