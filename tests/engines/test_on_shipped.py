"""A series of one's own on top of the shipped one, on the published vllm 0.6.3: written, proved, applied, toggled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.blackbox.command import difference, patchkit, snapshot
from tests.blackbox.released import UnreachableError, released_tree

pytestmark = [pytest.mark.engines, pytest.mark.network]

OURS = {
    "build": (
        "vllm/version.py",
        'importlib.metadata.version("vllm")\n',
        'importlib.metadata.version("vllm") + ".ours"\n',
    ),
    "flash": ("vllm/attention/layer.py", '"FlashInferBackend":\n', '("FlashInferBackend", "Ours"):\n'),
    "queue": (
        "vllm/core/scheduler.py",
        "            self.trace.record(self, scheduler_outputs)\n",
        "            self.trace.ours = scheduler_outputs\n",
    ),
}
"""A patch by its slug: the file, what the shipped series writes there, and what ours makes of it."""
GATES = {"flash": "QK_SCALE", "queue": "SCHED_TRACE"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    try:
        released = released_tree("vllm", "0.6.3")
    except UnreachableError as error:
        pytest.skip(str(error))
    return Path(shutil.copytree(released, tmp_path / "tree", symlinks=True))


def _done(*arguments: object) -> str:
    ended = patchkit(*arguments)
    assert ended.status == 0, ended.said
    return ended.said


def test_series_on_the_shipped_one_from_the_first_patch_to_the_last_revert(root: Path, tmp_path: Path) -> None:
    pristine = snapshot(root)
    own = tmp_path / "patches"
    for number, (slug, (path, old, new)) in enumerate(OURS.items(), 1):
        name, work = f"{number:04d}-{slug}.patch", tmp_path / slug
        gate = ("--config", GATES[slug]) if slug in GATES else ()
        begin = ("series", "new", slug, "--patches", own, "--root", root, "--subject", f"Ours: {slug}")
        _done(*begin, "--on-shipped", *gate)
        _done("series", "edit", name, "--patches", own, "--work", work, "--root", root)
        text = (work / path).read_text()
        assert text.count(old) == 1
        (work / path).write_text(text.replace(old, new))
        _done("series", "refresh", name, "--patches", own, "--work", work)
    _done("series", "lock", "--patches", own, "--root", root)
    assert "nothing to mend" in _done("series", "lint", own, "--root", root)

    asked = ("--root", root, "--patches", own)
    for qk_scale, trace in (("n", "n"), ("y", "n"), ("y", "y"), ("n", "y")):
        settings = ("--set", f"CONFIG_QK_SCALE={qk_scale}", "--set", f"CONFIG_SCHED_TRACE={trace}")
        _done("plan", *asked, *settings)
        _done("apply", *asked, *settings)
        _done("status", *asked, "--require-applied")
        on = {"build": "y", "flash": qk_scale, "queue": trace}
        for slug, (path, _, new) in OURS.items():
            assert ((root / path).read_text().count(new) == 1) is (on[slug] == "y"), slug
    assert patchkit("revert", "--root", root, "--layer", 1).status == 1
    _done("revert", "--root", root, "--layer", 2)
    assert ".ours" not in (root / "vllm/version.py").read_text()
    _done("revert", "--root", root)
    assert difference(snapshot(root), pristine) == []
