"""`patchkit attention`: what it answers without torch, and the commands as they are used."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from patchkit.errors import RefusedError
from tests.cli.said import Patchkit

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(autouse=True)
def _own_interpreter_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # the command sets it; it goes back with the test


@needs_torch
@pytest.mark.parametrize("command", ["bench", "list"])
def test_names_of_workloads_that_hold_commas_are_told_apart(command: str, patchkit: Patchkit) -> None:
    said = patchkit("attention", command, "--case", "nope", "--device", "cpu")
    assert (said.status, "error: no workload has 'nope' in its name" in said.err) == (2, True)
    names = said.err.split("next: there are: ")[1].strip().split("; ")
    assert [name.split(" ")[0] for name in names].count("prefill") > 1
    assert all(name.startswith(("prefill ", "dense ", "decode ", "chunk ", "draft ")) for name in names)


@pytest.mark.parametrize("command", ["check", "bench", "list", "build", "peers"])
def test_help_has_an_example(patchkit: Patchkit, command: str) -> None:
    said = patchkit("attention", command, "--help")
    assert said.status == 0
    assert f"patchkit attention {command}" in said.out


@pytest.mark.parametrize("arguments", [("check",), ("check", "--compile"), ("bench",), ("list",)], ids=" ".join)
def test_without_torch_it_says_what_to_install(
    patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("patchkit.attention.here.find_spec", lambda _: None)
    said = patchkit("attention", *arguments)
    assert said.status == 1
    assert "torch is not installed" in said.err
    assert f"in a checkout: {sys.executable} -m pip install '.[torch]' numpy" in said.err


@needs_torch
def test_without_numpy_triton_could_not_interpret(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchkit.attention.here.find_spec", lambda name: None if name == "numpy" else find_spec("os"))
    said = patchkit("attention", "list", "--device", "cpu")
    assert (said.status, "error: NumPy is not installed" in said.err) == (1, True)
    assert f"next: {sys.executable} -m pip install numpy" in said.err


@needs_torch
def test_a_workload_of_the_gpu_is_told_from_none_on_a_cpu(patchkit: Patchkit) -> None:
    said = patchkit("attention", "bench", "--case", "decode", "--device", "cpu")
    assert (said.status, "error: no workload has 'decode' in its name on a CPU" in said.err) == (2, True)
    assert "with 'decode' there are some for a GPU: --device cuda" in said.err
    assert "for a GPU" not in patchkit("attention", "bench", "--case", "nope", "--device", "cpu").err


def test_peers_that_cannot_be_written_are_said_before_they_are_fetched(
    patchkit: Patchkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchkit.fetch.fetch_distribution", lambda *_, **__: pytest.fail("it fetched"))
    (tmp_path / "file").write_text("no directory")
    said = patchkit("attention", "peers", "file/peers")
    assert (said.status, "error: the peers could not be written: file/peers" in said.err) == (1, True)


@needs_torch
class TestCheck:
    ONE = ("attention", "check", "--kernel", "eager", "--dtype", "float32", "--case", "one token")

    def test_text_says_how_many_are_right(self, patchkit: Patchkit) -> None:
        said = patchkit(*self.ONE)
        assert said.status == 0
        assert "eager: 2 of 2 right, 0 refused" in said.out

    def test_document(self, patchkit: Patchkit) -> None:
        document = patchkit(*self.ONE, "--json").document
        assert document["schema"] == 1
        assert document["right"] is True
        assert {row["case"] for row in document["results"]} == {"one token", "paged, pages of one token"}

    def test_kernel_that_takes_no_case_is_no_success(self, patchkit: Patchkit) -> None:
        said = patchkit("attention", "check", "--kernel", "cudnn", "--case", "one token", "--device", "cpu")
        assert said.status == 1
        assert "needs CUDA" in said.out

    def test_names_that_are_not_there_are_usage(self, patchkit: Patchkit) -> None:
        assert patchkit("attention", "check", "--kernel", "fastest").status == 2
        said = patchkit("attention", "check", "--case", "no such case")
        assert said.status == 2
        assert "error: no case has 'no such case' in its name" in said.err
        assert "next: `patchkit attention check` without --case names each as it runs" in said.err

    def test_a_kernel_named_twice_is_checked_once(self, patchkit: Patchkit) -> None:
        assert patchkit(*self.ONE, "--kernel", "eager").out == patchkit(*self.ONE).out

    def test_what_chooses_cases_says_nothing_to_the_compiler(self, patchkit: Patchkit) -> None:
        said = patchkit("attention", "check", "--compile", "--kernel", "eager", "--case", "one token")
        assert said.status == 2
        assert "next: leave out --kernel and --case" in said.err

    def test_device_that_is_not_there(self, patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        said = patchkit("attention", "check", "--device", "cuda")
        assert said.status == 1
        assert "there is no CUDA device here" in said.err


@needs_torch
def test_list_says_who_answers_and_why_not_the_others(patchkit: Patchkit) -> None:
    said = patchkit("attention", "list", "--case", "decode", "--device", "cpu")
    assert said.status == 0
    assert "chosen: eager" in said.out
    assert "cudnn: needs CUDA" in said.out
    (row,) = patchkit("attention", "list", "--case", "decode", "--device", "cpu", "--json").document["workloads"]
    assert row["chosen"] == "eager"


@needs_torch
def test_bench_writes_table_picture_and_records(
    patchkit: Patchkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from patchkit.attention import benching

    monkeypatch.setattr(benching, "check_cases", lambda _: [])  # what the check finds is tested beside it
    arguments = ("--case", "dense", "--device", "cpu", "--calls", "1", "--plot", "out.svg", "--record", "records")
    said = patchkit("attention", "bench", *arguments)
    assert said.status == 0
    assert "torch_flash_cpu" in said.out
    assert (tmp_path / "out.svg").read_text().startswith("<svg")
    assert len(list((tmp_path / "records").iterdir())) == 1


@needs_torch
@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("--plot", "file/out.svg"),
        ("--record", "file/out.svg"),
        ("--plot", ""),
        ("--plot", "link.svg"),
        ("--plot", "/proc/out.svg"),
        ("--record", "/proc"),
    ],
)
def test_bench_finds_a_place_that_cannot_be_written_before_it_measures(
    patchkit: Patchkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, place: str
) -> None:
    monkeypatch.setattr("patchkit.attention.benching.run_bench", lambda **_: pytest.fail("it measured"))
    (tmp_path / "file").write_text("no directory")
    (tmp_path / "link.svg").symlink_to("gone/out.svg")
    said = patchkit("attention", "bench", "--case", "dense", "--device", "cpu", option, place)
    assert said.status == 1
    assert "the results could not be written: " in said.err


@needs_torch
def test_bench_leaves_a_place_as_it_is_before_it_measures(
    patchkit: Patchkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[list[Path]] = []

    def measure(**_: object) -> None:
        places.append(sorted(tmp_path.iterdir()))
        raise RefusedError("enough seen")

    monkeypatch.setattr("patchkit.attention.benching.run_bench", measure)
    (tmp_path / "link.svg").symlink_to("out.svg")
    (tmp_path / "old.svg").write_text("old")
    for name in ("new.svg", "link.svg", "old.svg"):
        said = patchkit("attention", "bench", "--case", "dense", "--device", "cpu", "--plot", name)
        assert "error: enough seen" in said.err
    assert places == [[tmp_path / "link.svg", tmp_path / "old.svg"]] * 3
    assert (tmp_path / "old.svg").read_text() == "old"


@needs_torch
def test_bench_shows_what_it_could_not_write(
    patchkit: Patchkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from patchkit.attention import benching

    monkeypatch.setattr(benching, "check_cases", lambda _: [])
    monkeypatch.setattr("patchkit.cli.attention_bench._require_places", lambda *_: None)
    (tmp_path / "out.svg").symlink_to("gone/out.svg")
    said = patchkit("attention", "bench", "--case", "dense", "--device", "cpu", "--calls", "1", "--plot", "out.svg")
    assert said.status == 1
    assert "torch_flash_cpu" in said.out
    assert "the results could not be written: " in said.err


@needs_torch
@pytest.mark.parametrize("command", ["check", "bench"])
def test_seed_is_a_number_that_can_be_drawn_from(patchkit: Patchkit, command: str) -> None:
    said = patchkit("attention", command, "--seed", str(2**70))
    assert said.status == 2
    assert "--seed" in said.err


@needs_torch
def test_bench_of_a_kernel_that_takes_no_workload_is_no_success(
    patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    from patchkit.attention import benching

    monkeypatch.setattr(benching, "check_cases", lambda _: [])
    arguments = ("attention", "bench", "--case", "dense", "--device", "cpu", "--calls", "1", "--kernel", "eager")
    assert patchkit(*arguments).status == 0
    said = patchkit(*arguments, "--kernel", "cudnn")
    assert (said.status, "cudnn: needs CUDA" in said.out) == (1, True)


@needs_torch
def test_bench_leaves_out_what_the_check_finds_wrong(patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchkit.attention import benching

    monkeypatch.setattr(benching, "_wrong_kernels", lambda *_: {"eager": "one token: out: error"})
    said = patchkit("attention", "bench", "--case", "dense", "--device", "cpu", "--calls", "1")
    assert said.status == 1
    assert "eager: wrong, not timed: wrong in `attention check`: one token" in said.out
