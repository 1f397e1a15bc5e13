"""What an uninstall leaves of a patched engine: patchkit's own state, where no distribution is any more."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from patchkit.engine import find_engine
from patchkit.environment import interpreter_environment, prefix_sites, running_environment
from patchkit.state import HOME
from patchkit.target import Layout, TargetSpec, TargetTree


def find_remains(spec: TargetSpec) -> TargetTree | None:
    """Return the place where the engine was patched and is gone from, None when it never was patched there."""
    engine = find_engine(spec.engine)
    if engine is None:
        return None
    for site in _sites(spec):
        if (site / HOME / engine.name / "receipt.json").is_file() and not (site / engine.package).is_dir():
            return TargetTree(
                engine=engine.name,
                version="",
                root=site.resolve(),
                package=PurePosixPath(engine.package),
                layout=Layout.PIP,
                distribution="",
                python=None,
                python_version="",
                evidence=("only patchkit's state is left",),
            )
    return None


def _sites(spec: TargetSpec) -> tuple[Path, ...]:
    if spec.root is not None:
        return (spec.root, *prefix_sites(spec.root))
    environment = interpreter_environment(spec.python) if spec.python is not None else running_environment()
    return environment.sites
