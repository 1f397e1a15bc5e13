"""Engines laid out by hand as installers leave them, and how they resolve."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import TargetError
from patchkit.target import TargetTree, parse_target, resolve_target


def add_package(root: Path, package: str = "vllm") -> Path:
    directory = root / package
    directory.mkdir(parents=True)
    (directory / "__init__.py").write_text("raise SystemExit('an engine was imported')\n")
    return directory


def add_dist_info(root: Path, version: str, name: str = "vllm", *, installer: str | None = "pip") -> Path:
    directory = root / f"{name}-{version}.dist-info"
    directory.mkdir()
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if installer is not None:
        (directory / "INSTALLER").write_text(f"{installer}\n")
    return directory


def install(site: Path, version: str, name: str = "vllm", package: str = "vllm", installer: str | None = "pip") -> Path:
    site.mkdir(parents=True, exist_ok=True)
    if not (site / package).exists():
        add_package(site, package)
    return add_dist_info(site, version, name, installer=installer)


def resolve(text: str, root: Path | None = None, python: Path | None = None) -> TargetTree:
    return resolve_target(parse_target(text, root=root, python=python))


def refusal(text: str, root: Path | None = None, python: Path | None = None) -> str:
    with pytest.raises(TargetError) as caught:
        resolve(text, root, python)
    assert caught.value.hint
    assert len(caught.value.what) < 100 + len(str(root))
    return str(caught.value)
