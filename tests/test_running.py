"""Processes that may have imported an engine: real ones, of which one imports it and one does not."""

from __future__ import annotations

import _ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from patchkit.record import replace
from patchkit.running import _runs, processes_with
from patchkit.target import TargetTree
from tests.making import target

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="processes are looked for in Linux's /proc"
)


@pytest.fixture
def tree(tmp_path: Path) -> TargetTree:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    return replace(target("vllm", "0.6.3", package="vllm"), root=tmp_path)


@contextmanager
def running(directory: Path, code: str) -> Iterator[int]:
    """Run Python code until it said that it is there, and stop it at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}\nprint(flush=True)\ninput()"],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


def test_a_process_that_runs_the_engine_is_found_and_another_is_not(tree: TargetTree) -> None:
    with running(tree.root, "import vllm") as with_it, running(tree.root, "words = 'vllm serve', 'vllm'") as without:
        found = {one.pid: one for one in processes_with(tree)}
        assert without not in found
        assert found[with_it].evidence == "its command line runs it"
        assert "import vllm" in found[with_it].command
    assert with_it not in {one.pid for one in processes_with(tree)}


def test_a_library_that_is_loaded_says_of_which_tree(tree: TargetTree, tmp_path: Path) -> None:
    library = _ctypes.__file__
    shutil.copy(library, tree.root / "vllm" / "_C.so")
    other = tmp_path / "else" / "site-packages" / "vllm"
    other.mkdir(parents=True)
    shutil.copy(library, other / "_C.so")
    load = "import ctypes; ctypes.CDLL('{}')"
    own, elsewhere = load.format("./vllm/_C.so"), load.format(other / "_C.so")
    with running(tree.root, own) as here, running(tree.root, elsewhere) as there:
        found = {one.pid: one.evidence for one in processes_with(tree)}
    assert found[here] == "has _C.so loaded"
    assert there not in found


def test_where_there_is_no_proc_nothing_is_said(tree: TargetTree, tmp_path: Path) -> None:
    assert processes_with(tree, tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("-u -m vllm.entrypoints.openai.api_server --model x", True),
        ("-m vllm serve", True),
        ("/venv/bin/vllm serve x", True),
        ("-m pip download vllm", False),
        ("-m vllmlike", False),
        ("train.py --engine vllm", False),
        ("", False),
    ],
)
def test_a_command_line_runs_the_engine_or_only_names_it(words: str, runs: bool) -> None:
    assert _runs(words.split(), "vllm") is runs
