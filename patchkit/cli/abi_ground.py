"""What the abi commands look at: an installed or unpacked distribution, and the site directories around it."""

from __future__ import annotations

from pathlib import Path

from patchkit.abi.check import fitting_torches
from patchkit.abi.facts import WheelFacts
from patchkit.abi.inspect_wheel import find_dist_info
from patchkit.abi.ranges import release_range
from patchkit.abi.requirements import pinned_torch
from patchkit.abi.snapshot import TORCH, Facts
from patchkit.abi.torch_build import TorchBuild, installed_torch, stored_torch
from patchkit.cli.options import Choice, select_tree
from patchkit.engine import find_engine, normalise_name
from patchkit.environment import directory_names, interpreter_environment, prefix_sites, running_environment
from patchkit.errors import RefusedError, TargetError, UsageError
from patchkit.output import Output
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass, replace
from patchkit.specifier import accepts, pinned_version

_REQUIREMENT = compile_lazily(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*?)\s*((?:[=<>!~].*)?)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """A distribution that was found: `sites` are the directories that its interpreter looks in, `root` first."""

    root: Path
    dist_info: str
    sites: tuple[Path, ...]
    python: Path | None
    python_version: str
    file: str = ""


def find_distribution(choice: Choice, output: Output) -> Ground:
    """Find the distribution that --target names: an engine as everywhere, or any other by its dist-info."""
    if choice.target and find_engine(_name(choice.target)[0]) is None:
        return _find_other(choice)
    tree = select_tree(choice, output)
    if not tree.distribution:
        raise TargetError(
            f"{tree.root / tree.package} is not an installed or unpacked distribution",
            why="  there is no dist-info, which lists its files",
            hint="install it, or give the unpacked wheel with --root",
        )
    sites = tuple(dict.fromkeys((tree.root, *(running_environment().sites if _is_ours(tree.root) else ()))))
    return Ground(
        root=tree.root,
        dist_info=tree.distribution,
        sites=sites,
        python=tree.python,
        python_version=tree.python_version,
    )


def against_torch(text: str, ground: Ground, wheel: WheelFacts, facts: Facts) -> TorchBuild:
    """Return the torch that --against names, else the installed one, else the stored one that the wheel pins."""
    if text:
        name, specifier = _name(text)
        version = pinned_version(specifier)
        if normalise_name(name) != TORCH or not version:
            raise UsageError(f"--against {text}: expected torch==VERSION", hint="such as --against torch==2.8.0")
        return stored_torch(facts, version)
    for site in ground.sites:
        if _holds(site, TORCH):
            return installed_torch(site, find_dist_info(site, TORCH), facts)
    pinned = pinned_torch(wheel)
    if pinned in facts.torches:
        return replace(stored_torch(facts, pinned), origin="stored facts; none is installed here, the wheel pins it")
    fitting = fitting_torches(wheel, facts)
    having = f"; {release_range(fitting, facts.torches)} has every symbol that it needs" if fitting else ""
    raise UsageError(
        f"no torch to check {wheel.title} against",
        why="  none is installed beside it, and "
        + (f"no facts are stored about torch {pinned}" if pinned else "it pins none"),
        hint=f"--against torch==VERSION takes a released one; stored are {', '.join(facts.torches)}{having}",
    )


def torch_of(python: Path, facts: Facts) -> TorchBuild:
    """Return the torch that is installed for an interpreter."""
    sites = interpreter_environment(python).sites
    for site in sites:
        if _holds(site, TORCH):
            return installed_torch(site, find_dist_info(site, TORCH), facts)
    looked = ", ".join(map(str, sites)) or "no directory at all"
    raise TargetError(f"no torch is installed for {python}", why=f"  looked in {looked}", hint="check --python")


def write_file(path: Path, text: str) -> None:
    """Write what a command makes; RefusedError when it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"{path}: cannot be written", why=f"  {error.strerror}", hint="name another file") from error


def _find_other(choice: Choice) -> Ground:
    name, specifier = _name(choice.target)
    if choice.fetch is not None:
        from patchkit.fetch import fetch_distribution

        fetch_distribution(name, specifier, choice.fetch)
    sites, python, version = sites_of(choice)
    wanted = normalise_name(name)
    holders = [site for site in sites if _holds(site, wanted)]
    if not holders:
        looked = ", ".join(map(str, sites)) or "no directory at all"
        raise TargetError(
            f"no distribution {name} found",
            why=f"  looked in {looked}",
            hint="--root DIR, --python EXE or --wheel FILE says where it is",
        )
    dist_info = find_dist_info(holders[0], name)
    found = dist_info.removesuffix(".dist-info").rpartition("-")[2]
    if not accepts(specifier, found):
        raise TargetError(
            f"{name} {found} is here, not {name}{specifier}",
            why=f"  {holders[0] / dist_info}",
            hint=f"--target {name}=={found} takes this one",
        )
    return Ground(root=holders[0], dist_info=dist_info, sites=sites, python=python, python_version=version)


def sites_of(choice: Choice) -> tuple[tuple[Path, ...], Path | None, str]:
    """Return the directories that an interpreter or a prefix looks in, that interpreter and its version."""
    root = choice.root or choice.fetch
    if root is not None:
        return (root, *prefix_sites(root)), None, ""
    environment = interpreter_environment(choice.python) if choice.python is not None else running_environment()
    return environment.sites, environment.python, environment.version


def _holds(site: Path, wanted: str) -> bool:
    return any(
        normalise_name(name.removesuffix(".dist-info").rpartition("-")[0]) == wanted
        for name in directory_names(site)
        if name.endswith(".dist-info")
    )


def _is_ours(root: Path) -> bool:
    return root in running_environment().sites


def _name(target: str) -> tuple[str, str]:
    match = _REQUIREMENT.fullmatch(target)
    if match is None:
        raise UsageError(f"{target!r} names no distribution", hint="write NAME or NAME==VERSION: vllm==0.6.3")
    return match[1], match[2].strip()
