"""Starts each engine a few times for a whole session: as released, patched by the real command, and reverted."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchkit.resources import patches_directory
from tests.blackbox.command import patchkit
from tests.engines.breaking import chosen_patches
from tests.engines.driver import Engine, Output, Run, read_answer
from tests.engines.recipe import (
    MODELS,
    QK_SCALES,
    Recipe,
    cache_root,
    environment_path,
    models_path,
    tree_path,
)

LONGEST_FIRST = (
    "test_shim_vllm_032.py",
    "test_sglang_051.py",
    "test_vllm_032.py",
    "test_vllm_063.py",
    "test_shim_vllm_063.py",
    "test_shim_flash.py",
)
"""By their CPU time: two workers that each take the next file end together then."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with engines into that order, before all others."""
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.name) if item.path.name in LONGEST_FIRST else len(items))


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """What transformers says of the tiny models. Keys are (model, softmax scale)."""

    outputs: dict[tuple[str, float], tuple[Output, ...]]
    prompts: dict[str, tuple[str, ...]]
    prompt_tokens: dict[str, int]
    least_leads: dict[tuple[str, float], float]

    def run(self, name: str, dtype: str = "float32", **environment: str) -> Run:
        """Return the run of a model over its prompts."""
        return Run(model=models_path() / name, prompts=self.prompts[name], dtype=dtype, environment=environment)


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    _need(models_path())
    answer = read_answer(models_path() / "oracle.json")
    keys = [(name, scale) for name in MODELS for scale in QK_SCALES]
    said = dict(zip(keys, (run["outputs"] for run in answer.facts["runs"]), strict=True))
    return Oracle(
        outputs=dict(zip(keys, answer.outputs, strict=True)),
        prompts={name: tuple(one["prompt"] for one in said[name, 1.0]) for name in MODELS},
        prompt_tokens={name: sum(len(one["prompt_tokens"]) for one in said[name, 1.0]) for name in MODELS},
        least_leads={key: min(one["least_lead"] for one in outputs) for key, outputs in said.items()},
    )


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where the engines of a session stand: copies of the released trees, and a place for logs."""

    trees: Path
    logs: Path
    patches: Path
    """Where the series are: the shipped ones, or those of which one was broken on purpose."""

    @property
    def series(self) -> tuple[object, ...]:
        """The options that name other patches than the shipped ones."""
        return () if self.patches == patches_directory() else ("--no-shipped", "--patches", self.patches)

    def released(self, recipe: Recipe, **layout: Any) -> Engine:
        """Return the engine on the tree of the cache, which nobody writes to."""
        _need(environment_path(recipe))
        _need(tree_path(recipe))
        return Engine(recipe=recipe, tree=tree_path(recipe), work=self.logs / f"{recipe.name}-released", **layout)

    def patched(self, recipe: Recipe, **layout: Any) -> Engine:
        """Return the engine on a copy to which the command has applied the shipped series."""
        _need(environment_path(recipe))
        _need(tree_path(recipe))
        tree = self.trees / recipe.name
        shutil.copytree(tree_path(recipe), tree, symlinks=True, copy_function=_link)
        unlocked = ("--unlocked",) if self.series else ()
        applied = patchkit("apply", "--target", recipe.engine, "--root", tree, *self.series, *unlocked)
        assert applied.status == 0, applied.said
        return Engine(recipe=recipe, tree=tree, work=self.logs / f"{recipe.name}-patched", **layout)

    def set(self, patched: Engine, *settings: str, patches: Path | None = None) -> Engine:
        """Change the configuration of a patched tree (of `patches`, not the shipped ones); return the engine on it."""
        series = self.series if patches is None else ("--no-shipped", "--patches", patches)
        where = ("--target", patched.recipe.engine, "--root", patched.tree)
        done = patchkit("config", "set", *settings, *where, *series)
        assert done.status == 0, done.said
        return patched

    def replaced(self, patched: Engine, patches: Path) -> Engine:
        """Revert the tree of a patched engine, apply other patches to it and return the engine on it."""
        where = ("--target", patched.recipe.engine, "--root", patched.tree)
        reverted = patchkit("revert", *where)
        assert reverted.status == 0, reverted.said
        applied = patchkit("apply", *where, "--no-shipped", "--patches", patches, "--unlocked")
        assert applied.status == 0, applied.said
        return patched

    def reverted(self, patched: Engine, **layout: Any) -> Engine:
        """Revert the tree of a patched engine, in which it has run, and return the engine on it."""
        reverted = patchkit("revert", "--target", patched.recipe.engine, "--root", patched.tree)
        assert reverted.status == 0, reverted.said
        work = self.logs / f"{patched.recipe.name}-reverted"
        return Engine(recipe=patched.recipe, tree=patched.tree, work=work, **layout)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Return a bench. The logs lie where pytest keeps what the last sessions left."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trees-", dir=cache_root()) as trees:
        patches = chosen_patches(tmp_path_factory.mktemp("broken"))
        yield Bench(trees=Path(trees), logs=tmp_path_factory.mktemp("engines"), patches=patches)


def _need(part: Path) -> None:
    if not part.with_name(f"{part.name}.complete").exists():
        pytest.fail(f"{part} is not built; run: make engines")


def _link(source: str, target: str) -> None:
    """Link a file, as uv does from its cache: whoever patches it in place spoils the cache, and a test sees that."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(source, target)
