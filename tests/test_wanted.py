"""Layers as they are asked for: labels, reasons, terms, and which names count as files."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from patchkit.errors import PatchFormatError
from patchkit.receipt import Origin
from patchkit.target import Layout
from patchkit.wanted import TreeNames
from tests.making import DictTree, Files, World, diff, entries_of, header, lines, link, make_lock, settings, target

TREE: Files = {"vllm/a.py": lines(12), "vllm/ln": link("a.py"), "vllm/d/x": "x\n"}
CHANGED: Files = {**TREE, "vllm/a.py": lines(12).replace("line 6\n", "six\n")}


def world() -> World:
    return World(TREE, target("vllm", "0.6.3"))


def test_names_are_of_files_and_links_in_any_of_the_trees_and_of_what_is_made() -> None:
    names = TreeNames(DictTree(entries_of(TREE)), DictTree(entries_of({"was/here": "x\n"})))
    assert names.exist("vllm/a.py")
    assert names.exist("vllm/ln")
    assert names.exist("was/here")
    assert not names.exist("vllm/d")
    assert not names.exist("vllm/new.py")
    names.add((("vllm/a.py", "vllm/new.py"), ("x", "")))
    assert names.exist("vllm/new.py")


def test_diff_is_a_layer_named_after_its_file() -> None:
    layer = world().ad_hoc(diff(TREE, CHANGED), "deep/pr-1.diff")
    assert (layer.name, layer.origin, layer.strict) == ("pr-1.diff", Origin.AD_HOC, False)
    assert layer.patches[0].paths == (("vllm/a.py", "vllm/a.py"),)
    assert layer.patches[0].mapping == "-p1"


def test_strict_is_for_diffs_and_always_for_series() -> None:
    one = world()
    assert one.ad_hoc(diff(TREE, CHANGED), strict=True).strict
    patches = {"0001.patch": diff(TREE, CHANGED)}
    assert one.series(patches).strict
    assert one.series(patches, lock=make_lock(patches, TREE, CHANGED)).strict


def test_compressed_diff_is_stored_inflated() -> None:
    import gzip

    raw = diff(TREE, CHANGED)
    layer = world().ad_hoc(gzip.compress(raw), "pr.diff.gz")
    assert layer.patches[0].raw == raw


def test_what_is_no_diff_is_said() -> None:
    with pytest.raises(PatchFormatError):
        world().ad_hoc(b"prose\n")


@pytest.mark.parametrize(
    ("trailers", "values", "reason", "retired"),
    [
        ({}, {}, "", False),
        ({"Config": "A"}, {}, "CONFIG_A is not set", False),
        ({"Config": "A"}, {"A": "n"}, "CONFIG_A is not set", False),
        ({"Config": "A"}, {"A": "y"}, "", False),
        ({"Applies_To": "vllm>=0.7"}, {}, "not for this release: applies to vllm>=0.7", False),
        ({"Retires_When": "vllm>=0.6"}, {}, "retired: vllm>=0.6 is true of 0.6.3", True),
        ({"Retires_When": "vllm>=0.6", "Config": "A"}, {"A": "y"}, "retired: vllm>=0.6 is true of 0.6.3", True),
    ],
)
def test_patch_of_a_series_is_left_out_for_a_reason(
    trailers: dict[str, str], values: dict[str, str], reason: str, retired: bool
) -> None:
    raw = header("x", **trailers) + diff(TREE, CHANGED)
    layer = world().series({"0001.patch": raw}, configuration=settings(**values))
    patch = layer.patches[0]
    assert (patch.reason, patch.enabled, patch.retired) == (reason, not reason, retired)
    assert patch.config == trailers.get("Config", "")


def test_patch_may_change_what_the_one_before_it_makes() -> None:
    made: Files = {**TREE, "vllm/new.py": "a\nb\nc\n"}
    after: Files = {**TREE, "vllm/new.py": "a\nB\nc\n"}
    layer = world().series({"1.patch": diff(TREE, made), "2.patch": diff(made, after)})
    assert layer.patches[1].paths == (("vllm/new.py", "vllm/new.py"),)


def test_lock_of_a_wheel_fits_a_checkout_with_the_package_elsewhere() -> None:
    wheel: Files = {"sglang/a.py": lines(12)}
    patched: Files = {"sglang/a.py": lines(12).replace("line 6\n", "six\n")}
    one = World({f"python/{path}": text for path, text in wheel.items()}, target("sglang", "0.5.1", Layout.SOURCE))
    patches = {"0001.patch": diff(wheel, patched)}
    layer = one.series(patches, lock=make_lock(patches, wheel, patched, "0.5.1"))
    assert layer.artifact is not None
    assert layer.artifact.files[0].path == "python/sglang/a.py"
    assert not one.put(layer).refused
    assert one.now[PurePosixPath("python/sglang/a.py")].content == str(patched["sglang/a.py"]).encode()
