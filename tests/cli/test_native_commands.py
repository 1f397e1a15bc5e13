"""`patchkit native` as a user runs it, on the host library: nothing but a compiler is needed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.blackbox.command import PATCHKIT, Ended, patchkit, run
from tests.dist_info import write_dist_info

pytestmark = pytest.mark.xdist_group("native-cli")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native")


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    path = tmp_path / "segments"
    path.mkdir()
    return path


@pytest.fixture
def surroundings(cache: Path, segments: Path) -> dict[str, str]:
    return {"PATCHKIT_NATIVE": str(cache), "PATCHKIT_SHIM_DIRECTORY": str(segments)}


@pytest.fixture
def program(surroundings: dict[str, str]) -> Path:
    built = native("build", "--target", "host", "--json", **surroundings)
    assert built.status == 0, built.said
    return Path(built.report["stage1"]).with_name("attention-host")


@pytest.fixture
def running(program: Path, surroundings: dict[str, str]) -> Iterator[int]:
    """A program that calls until it is ended; its number."""
    from os import environ

    line = [*PATCHKIT, "native", "run", "--target", "host", "--", str(program), "1000000000", "1"]
    with subprocess.Popen(line, env={**environ, **surroundings}, stdout=subprocess.DEVNULL) as child:
        try:
            while native("status", **surroundings).status:
                assert child.poll() is None
            yield child.pid
        finally:
            child.kill()


def started(line: list[str], environment: dict[str, str]) -> Ended:
    return run(line, cwd=None, seconds=120, **environment)


def native(*arguments: object, **environment: str) -> Ended:
    return patchkit("native", *arguments, cwd=None, seconds=120, **environment)


def test_built_twice_it_is_built_once(program: Path, surroundings: dict[str, str]) -> None:
    again = native("build", "--target", "host", "--json", **surroundings).report
    assert again["fresh"] is False
    assert again["commands"] == []
    assert [one["name"] for one in again["entry_points"]] == ["attention_forward"]
    assert "kept:" in native("build", "--target", "host", **surroundings).out


def test_build_for_the_host_names_the_program_to_run(program: Path, surroundings: dict[str, str]) -> None:
    assert native("build", "--target", "host", "--json", **surroundings).report["program"] == str(program)
    assert f"  program: {program.name}\n" in native("build", "--target", "host", **surroundings).out
    assert "native build --target host` names its program" in native("doctor", "--target", "host", **surroundings).said


def test_a_compiler_that_fails_is_shown_with_its_command(surroundings: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    answers = "--version) echo cc 1;; -dumpmachine) echo x86_64-linux;; *) echo no >&2; exit 3;;"
    broken.write_text(f'#!/bin/sh\ncase "$1" in {answers} esac\n')
    broken.chmod(0o755)
    said = native("build", "--target", "host", CC=str(broken), **surroundings)
    assert said.status == 1
    assert "cc ended with 3" in said.err
    assert "  no" in said.err
    assert f"{broken} -std=c11" in said.err


def test_no_compiler_is_said(surroundings: dict[str, str]) -> None:
    said = native("build", "--target", "host", CC="no-such-compiler", **surroundings)
    assert (said.status, "apt-get install gcc" in said.err) == (1, True)


def test_run_counts_and_status_shows_it(program: Path, surroundings: dict[str, str]) -> None:
    plain = run([str(program), "50", "2"])
    ran = native("run", "--target", "host", "--", program, 50, 2, **surroundings)
    assert (ran.status, ran.out, ran.err) == (0, plain.out, "")
    said = native("status", **surroundings)
    assert said.status == 0
    assert f"{program}: called" in said.out
    assert "attention_forward: 100 calls" in said.out
    [process] = native("status", "--json", **surroundings).report["processes"]
    assert (process["running"], process["verdict"], process["threads"]) == (False, "called", 2)
    assert process["entry_points"][0]["typed"] is True


def test_run_passes_the_exit_status_on(program: Path, surroundings: dict[str, str]) -> None:
    assert native("run", "--target", "host", "--", program, 0, **surroundings).status == 2


def test_run_of_a_program_that_is_not_there(surroundings: dict[str, str]) -> None:
    said = native("run", "--target", "host", "--", "/no/such/program", **surroundings)
    assert (said.status, "no program /no/such/program" in said.err) == (2, True)


def _script(tmp_path: Path, first: str) -> Path:
    path = tmp_path / "script"
    path.write_text(f"{first}\necho hi\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("first", ["", "#!/no/such/interpreter"])
def test_run_of_a_program_that_the_kernel_refuses(first: str, surroundings: dict[str, str], tmp_path: Path) -> None:
    said = native("run", "--target", "host", "--", _script(tmp_path, first), **surroundings)
    assert (said.status, "script cannot be run" in said.err) == (2, True)


def test_a_script_can_be_run_but_the_shim_is_not_awake_in_one(surroundings: dict[str, str], tmp_path: Path) -> None:
    script = _script(tmp_path, "#!/bin/sh")
    assert native("run", "--target", "host", "--", script, **surroundings).out == "hi\n"
    said = native("run", "--target", "host", "--program", script, "--", script, **surroundings)
    assert (said.status, "the shim cannot be awake in this program" in said.err) == (1, True)


def test_a_command_of_which_a_quotation_does_not_end(surroundings: dict[str, str]) -> None:
    said = native("build", "--target", "host", CC="'gcc", **surroundings)
    assert (said.status, "CC is no command" in said.err) == (2, True)


@pytest.mark.parametrize("place", ["/dev/null/cache", "/proc/no-such-directory"])
def test_a_cache_that_cannot_be_made(place: str) -> None:
    said = native("build", "--target", "host", PATCHKIT_NATIVE=place)
    assert (said.status, "cannot be used for builds" in said.err) == (1, True)


@pytest.fixture
def copied(program: Path, tmp_path: Path) -> Path:
    """A cache of its own, with the build in it; returns the build."""
    return Path(shutil.copytree(program.parent, tmp_path / "cache" / program.parent.name))


def _everybodys(build: Path) -> None:
    build.parent.chmod(0o777)


def _everybodys_build(build: Path) -> None:
    build.chmod(0o777)


def _of_another(build: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a directory away")
    os.chown(build.parent, 65534, 65534)


@pytest.mark.parametrize("spoil", [_everybodys, _everybodys_build, _of_another])
def test_a_cache_that_others_can_write_to(spoil: Callable[[Path], None], copied: Path) -> None:
    spoil(copied)
    said = native("env", "--target", "host", PATCHKIT_NATIVE=str(copied.parent))
    assert (said.status, "is not safe to load code from" in said.err) == (1, True)


@pytest.mark.parametrize("name", ["libpatchkit-shim.so", "patchkit-stage2.so"])
def test_a_build_that_is_not_whole_any_more(name: str, copied: Path) -> None:
    (copied / name).unlink()
    said = native("env", "--target", "host", PATCHKIT_NATIVE=str(copied.parent))
    assert (said.status, f"missing: {name}" in said.err) == (1, True)


def test_a_stage_1_that_was_cut(copied: Path) -> None:
    os.truncate(copied / "libpatchkit-shim.so", 5000)
    said = native("env", "--target", "host", PATCHKIT_NATIVE=str(copied.parent))
    assert (said.status, "libpatchkit-shim.so was changed" in said.err) == (1, True)


def test_pth_file_can_hold_any_path(program: Path, tmp_path: Path) -> None:
    cache = tmp_path / "a\"b'c\\n$d"
    shutil.copytree(program.parent, cache / program.parent.name)
    line = native("env", "--target", "host", "--pth", PATCHKIT_NATIVE=str(cache)).out
    show = (
        f"import ctypes, os; ctypes.CDLL = lambda name, mode: print(name, os.environ['PATCHKIT_SHIM_STAGE2'])\n{line}"
    )
    said = run([sys.executable, "-c", show], PATCHKIT_SHIM_PTH="1")
    kept = cache / program.parent.name
    assert (said.status, said.out) == (0, f"{kept / 'libpatchkit-shim.so'} {kept / 'patchkit-stage2.so'}\n")


def test_run_keeps_what_is_preloaded(surroundings: dict[str, str]) -> None:
    said = native("run", "--target", "host", "--", "/bin/sh", "-c", 'echo "$LD_PRELOAD"', LD_PRELOAD="", **surroundings)
    assert said.out.rstrip().endswith("libpatchkit-shim.so")


def test_never_called_is_a_failure(surroundings: dict[str, str]) -> None:
    program = Path("/bin/true")
    line = ("run", "--target", "host", "--program", program, "--", program)
    assert native(*line, **surroundings).status == 0
    said = native("status", **surroundings)
    assert said.status == 1
    assert "loaded, never called" in said.out


def test_status_of_nothing_is_a_failure(surroundings: dict[str, str]) -> None:
    said = native("status", **surroundings)
    assert (said.status, said.out) == (1, "no process has the shim\n")
    assert said.err == "next: `patchkit native run --target ENGINE -- PROGRAM` starts one with it\n"
    assert native("status", "--json", **surroundings).report == {
        "schema": 1, "called": False, "processes": [], "unreadable": [],
        "next": "`patchkit native run --target ENGINE -- PROGRAM` starts one with it",
    }  # fmt: skip


def test_env_is_what_a_shell_takes(program: Path, surroundings: dict[str, str]) -> None:
    said = native("env", "--target", "host", "--mode", "trace", LD_PRELOAD="", **surroundings)
    lines = [shlex.split(line) for line in said.out.splitlines()]
    assert {words[0] for words in lines} == {"export"}
    variables = dict(words[1].split("=", 1) for words in lines)
    assert variables["PATCHKIT_SHIM"] == str(program)
    assert started([str(program), "10"], {**variables, **surroundings}).status == 0
    [process] = native("status", "--json", **surroundings).report["processes"]
    assert (process["settings"]["mode"], process["records"]["written"]) == ("trace", 10)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--way", "plugin"), "--way plugin is a plugin of vLLM"),
        (
            ("--way", "dispatcher", "--mode", "transform", "--set", "rope_offset=1"),
            "--way dispatcher is a plugin of vLLM",
        ),
        (("--way", "plugin", "--pth"), "--pth and --way plugin are two ways in"),
        (("--way", "dispatcher", "--mode", "replace"), "mode=replace is not for operators that are registered anew"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_way_that_leads_nowhere_is_refused(
    program: Path, surroundings: dict[str, str], words: tuple[str, ...], said: str
) -> None:
    assert program.is_file()
    ended = native("env", "--target", "host", *words, **surroundings)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err


def test_pth_file_opens_the_shim_only_when_asked(surroundings: dict[str, str], tmp_path: Path) -> None:
    import os
    import sys

    python = os.path.realpath(sys.executable)
    line = native("env", "--target", "host", "--program", python, "--pth", LD_PRELOAD="", **surroundings).out
    assert len(line.splitlines()) == 1
    (tmp_path / "patchkit_shim.pth").write_text(line)
    code = f"import site, sys; site.addsitedir({str(tmp_path)!r}); print('torch' in sys.modules)"
    assert started([python, "-c", code], surroundings).out == "False\n"
    assert native("status", **surroundings).out == "no process has the shim\n"
    opted = started([python, "-c", code], {"PATCHKIT_SHIM_PTH": "1", **surroundings})
    assert (opted.out, opted.err) == ("False\n", "")
    assert len(native("status", "--json", **surroundings).report["processes"]) == 1


def test_set_is_seen_while_it_runs_and_top_shows_it(running: int, surroundings: dict[str, str]) -> None:
    told = native("set", "--pid", running, "mode=trace", "--json", **surroundings)
    assert told.status == 0, told.said
    assert told.report["processes"][0]["settings"]["mode"] == "trace"
    [rate] = native("top", "--seconds", "0.5", "--json", **surroundings).report["rates"]
    assert rate["pid"] == running
    assert rate["calls"] > 0
    assert rate["traced"] > 0
    assert rate["shapes"] == [[2, 9]]
    assert "q 2x9" in native("top", "--seconds", "0.5", "--times", "1", **surroundings).out


def test_what_is_set_for_another_mode_is_said_to_be(running: int, surroundings: dict[str, str]) -> None:
    words = "qk_scale 0.5 (for mode transform)"
    assert native("set", "qk_scale=0.5", **surroundings).out == f"{running}: mode count, {words}\n"
    assert f"  mode count, {words}, 1 thread, " in native("status", **surroundings).out
    assert native("set", "mode=transform", **surroundings).out == f"{running}: mode transform, qk_scale 0.5\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "nothing to set"),
        (("mode=fast",), "no mode 'fast'"),
        (("mode=transform", "window=3"), "window changes nothing here"),
        (("window=3",), "window changes nothing here"),
    ],
    ids=str,
)
def test_set_of_what_means_nothing(
    running: int, surroundings: dict[str, str], words: tuple[str, ...], why: str
) -> None:
    said = native("set", *words, **surroundings)
    assert (said.status, why in said.err) == (2, True), said.said


def test_set_without_a_process(surroundings: dict[str, str]) -> None:
    said = native("set", "mode=off", **surroundings)
    assert (said.status, "no running process with the shim" in said.err) == (1, True)


def test_top_without_a_process_says_where_to_look(surroundings: dict[str, str]) -> None:
    said = native("top", "--seconds", "0.1", "--times", "1", **surroundings)
    assert said.status == 1
    assert said.out == "the shim is bound in no running process; `patchkit native status` shows all\n"


def test_doctor_of_a_release_without_libraries(surroundings: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").touch()
    write_dist_info(tmp_path, "vllm", "0.6.3")
    said = native("doctor", "--target", "vllm", "--root", tmp_path, **surroundings)
    assert said.status == 1
    assert "paged_attention_v1: no library here exports" in said.out
    document = json.loads(native("doctor", "--target", "vllm", "--root", tmp_path, "--json", **surroundings).out)
    assert document["entry_points"] == []
    assert len(document["missing"]) == 6
    assert native("build", "--target", "vllm", "--root", tmp_path, **surroundings).status == 1
