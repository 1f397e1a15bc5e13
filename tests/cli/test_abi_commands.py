"""The abi commands as a user calls them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from patchkit.errors import UsageError
from tests.abi.binaries import EVERYWHERE, OLD_STRING, calling, compile_shared, needs_compiler, unpacked_wheel, zipped
from tests.cli.said import Patchkit

SYMBOL = "_ZN3c104cuda9SetDeviceEab"


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    made = compile_shared(tmp_path / "made", "made.so", calling(EVERYWHERE, OLD_STRING))
    return unpacked_wheel(tmp_path / "kernel", {"sgl_kernel/_C.abi3.so": made.read_bytes()})


class TestExplain:
    def test_symbol_is_put_into_words_with_its_range(self, patchkit: Patchkit) -> None:
        said = patchkit("abi", "explain", SYMBOL)
        assert said.status == 0
        assert said.out.startswith("c10::cuda::SetDevice(signed char, bool)\n")
        assert "in torch 2.8.0 to 2.14.1; not yet in 2.7.0" in said.out

    @pytest.mark.parametrize("symbol", [SYMBOL, "_ZN3c1015SmallVectorBaseIjE8grow_podEPKvmm"])
    def test_a_function_without_a_string_is_not_said_to_return_one(self, patchkit: Patchkit, symbol: str) -> None:
        said = patchkit("abi", "explain", symbol)
        assert "std::string" not in said.out

    def test_words_of_a_message_need_no_quotes(self, patchkit: Patchkit) -> None:
        assert "SetDevice" in patchkit("abi", "explain", "ImportError:", "undefined", "symbol:", SYMBOL).out

    def test_message_is_read_from_stdin_behind_megabytes_of_a_log(
        self, patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        log = tmp_path / "log"
        log.write_bytes(b"step \xff done\n" * 100_000 + f"undefined symbol: {SYMBOL}\n".encode())
        with log.open(encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            assert "SetDevice" in patchkit("abi", "explain", "-").out

    def test_what_is_longer_than_is_read_is_refused(
        self, patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("patchkit.cli.reading.MAX_TEXT", 100)
        log = tmp_path / "log"
        log.write_text(f"undefined symbol: {SYMBOL}\n" + "x" * 100)
        with log.open(encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            said = patchkit("abi", "explain", "-")
        assert (said.status, said.out) == (2, "")
        assert "stdin: larger than 100 bytes" in said.err

    @pytest.mark.parametrize("text", ["lib-" * 500_000, "lookup error: " * 200_000], ids=["library", "lookup"])
    def test_long_line_that_is_nearly_a_message_takes_no_quadratic_time(self, patchkit: Patchkit, text: str) -> None:
        from patchkit.abi.explain import explain
        from patchkit.abi.snapshot import stored_facts

        with pytest.raises(UsageError, match="no symbol"):
            explain(text, stored_facts())

    def test_document(self, patchkit: Patchkit) -> None:
        [one] = patchkit("abi", "explain", SYMBOL, "--json").document["explanations"]
        assert one["releases"][0] == "2.8.0"
        assert one["libraries"] == ["libc10_cuda.so"]

    def test_module_that_is_not_there_is_said_of_a_traceback(self, patchkit: Patchkit) -> None:
        trace = "Traceback (most recent call last):\n  File 'x', line 1\nModuleNotFoundError: No module named 'torch'\n"
        said = patchkit("abi", "explain", trace)
        assert (said.status, "torch is not installed for the Python that said this" in said.out) == (0, True)
        said = patchkit("abi", "explain", "No module named 'vllm._C'")
        assert "vllm was found and has no _C" in said.out

    def test_text_without_a_symbol_is_quoted_from_its_end(self, patchkit: Patchkit) -> None:
        said = patchkit("abi", "explain", f"{'x ' * 99}\nRuntimeError: out of memory\n")
        assert "'RuntimeError: out of memory'" in said.err

    def test_many_symbols_are_all_shown_with_progress_on_stderr(
        self, patchkit: Patchkit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("patchkit.output._PATIENCE_SECONDS", -1.0)
        said = patchkit("abi", "explain", *(f"_ZN3c104cuda9SetDeviceE{'i' * (1 + number)}" for number in range(300)))
        assert said.status == 0
        assert sum(line.startswith("c10::cuda::SetDevice(") for line in said.out.splitlines()) == 300
        assert "explained 256 of 300 symbols" in said.err.splitlines()

    def test_text_without_a_symbol_is_a_misuse(self, patchkit: Patchkit) -> None:
        said = patchkit("abi", "explain", "it does not work")
        assert (said.status, "paste the line" in said.err) == (2, True)


@needs_compiler
class TestCheck:
    def test_what_does_not_fit_is_refused_and_told(self, patchkit: Patchkit, kernel: Path) -> None:
        said = patchkit("abi", "check", "--target", "sgl-kernel", "--root", kernel, "--against", "torch==2.8.0")
        assert said.status == 1
        assert "sgl-kernel==9.9.9 against torch==2.8.0 (stored facts) on this machine" in said.out
        assert "torch::jit::parseSchemaOrName(std::string const&, bool)" in said.out
        assert "verdict: broken: 1 of 1 shared object does not fit" in said.out
        assert "next: pip install torch==2.6.0" in said.out

    def test_what_may_be_touched_is_at_risk_and_no_refusal(self, patchkit: Patchkit, tmp_path: Path) -> None:
        made = compile_shared(
            tmp_path / "made", "made.so", calling("_ZNK3c1017SymbolicShapeMeta18init_is_contiguousEv")
        )
        files = {"sgl_kernel/_C.abi3.so": made.read_bytes()}
        root = unpacked_wheel(tmp_path / "risky", files, requires=("torch==2.13.0",))
        arguments = ("abi", "check", "--target", "sgl-kernel", "--root", root, "--against", "torch==2.14.1")
        said = patchkit(*arguments)
        assert said.status == 0
        assert "verdict: at risk: 1 of 1 shared object may touch what lies elsewhere" in said.out
        assert "only tensors with symbolic sizes lead there" in said.out
        assert "next: pip install torch==2.13.0  (what it was built with)" in said.out
        document = patchkit(*arguments, "--json").document
        assert (document["status"], document["verdict"]) == (0, "at risk")

    def test_without_a_torch_those_that_have_every_symbol_are_named(self, patchkit: Patchkit, kernel: Path) -> None:
        said = patchkit("abi", "check", "--wheel", zipped(kernel, kernel.with_name("k.whl")))
        assert said.status == 2
        assert "; 2.4.0 to 2.6.0 has every symbol that it needs" in said.err

    @pytest.mark.parametrize("glibc", ["abc", "2", "99999999999.1"])
    def test_a_glibc_that_is_none_is_a_misuse(self, patchkit: Patchkit, kernel: Path, glibc: str) -> None:
        against = ("--against", "torch==2.6.0")
        said = patchkit("abi", "check", "--target", "sgl-kernel", "--root", kernel, *against, "--glibc", glibc)
        assert (said.status, "takes a version like 2.31" in said.err) == (2, True)

    def test_what_fits_is_done_and_says_what_is_not_known(self, patchkit: Patchkit, kernel: Path) -> None:
        said = patchkit("abi", "check", "--target", "sgl-kernel", "--root", kernel, "--against", "torch==2.6.0")
        assert said.status == 0
        assert "verdict: fits, as far as it is known; not known: layout, vtable, argument classes" in said.out

    def test_document_has_seven_columns(self, patchkit: Patchkit, kernel: Path) -> None:
        arguments = ("abi", "check", "--target", "sgl-kernel", "--root", kernel, "--against", "torch==2.8.0", "--json")
        document = patchkit(*arguments).document
        [one] = document["objects"]
        assert list(one["columns"]) == [
            *("symbols", "system versions", "mangling", "layout", "vtable", "op schemas", "argument classes"),
        ]
        assert one["missing"] == [
            {
                "symbol": OLD_STRING,
                "words": "torch::jit::parseSchemaOrName(std::string const&, bool)",
                "releases": ["2.4.0", "2.5.1", "2.6.0"],
            }
        ]
        assert (document["verdict"], document["status"]) == ("broken", 1)

    def test_wheel_under_another_name_is_broken(self, patchkit: Patchkit, kernel: Path, tmp_path: Path) -> None:
        wheel = zipped(kernel, tmp_path / "sgl_kernel-9.9.8-cp310-abi3-linux_x86_64.whl")
        said = patchkit("abi", "check", "--wheel", wheel, "--against", "torch==2.6.0", "--glibc", "2.31")
        assert said.status == 1
        assert f"file name: {wheel.name} says version 9.9.8, its METADATA 9.9.9: pip refuses it" in said.out

    def test_python_that_is_named_judges_the_tag_of_a_wheel(
        self, patchkit: Patchkit, kernel: Path, tmp_path: Path
    ) -> None:
        wheel = zipped(kernel, tmp_path / "sgl_kernel-9.9.9-cp27-cp27mu-linux_x86_64.whl")
        asked = ("abi", "check", "--wheel", wheel, "--against", "torch==2.6.0", "--glibc", "2.31")
        loose, named = patchkit(*asked), patchkit(*asked, "--python", sys.executable)
        assert (loose.status, named.status) == (0, 1)
        assert "--python EXE names the one that it is for" in loose.out
        assert f"this is Python {sys.version_info[0]}.{sys.version_info[1]}" in named.out

    def test_wheel_and_a_tree_are_two_things(self, patchkit: Patchkit, kernel: Path, tmp_path: Path) -> None:
        wheel = zipped(kernel, tmp_path / "sgl_kernel-9.9.9-cp310-abi3-linux_x86_64.whl")
        said = patchkit("abi", "check", "--wheel", wheel, "--root", kernel)
        assert (said.status, "name two things" in said.err) == (2, True)

    def test_wheel_file_is_checked_as_it_is(self, patchkit: Patchkit, kernel: Path, tmp_path: Path) -> None:
        wheel = zipped(kernel, tmp_path / "sgl_kernel-9.9.9-cp310-abi3-linux_x86_64.whl")
        said = patchkit("abi", "check", "--wheel", wheel, "--against", "torch==2.6.0", "--glibc", "2.31", "-v")
        assert said.status == 0
        assert "on glibc 2.31" in said.out
        assert "all 2 torch symbols are in torch==2.6.0" in said.out

    def test_any_distribution_can_be_checked(self, patchkit: Patchkit, tmp_path: Path) -> None:
        made = compile_shared(tmp_path / "made", "made.so", calling(EVERYWHERE))
        root = unpacked_wheel(tmp_path / "r", {"kvcached/ops.abi3.so": made.read_bytes()}, name="kvcached")
        said = patchkit("abi", "check", "--target", "kvcached==9.9.9", "--root", root, "--against", "torch==2.8.0")
        assert said.status == 0
        other = patchkit("abi", "check", "--target", "kvcached==1.0", "--root", root, "--against", "torch==2.8.0")
        assert (other.status, "kvcached 9.9.9 is here" in other.err) == (1, True)
        gone = patchkit("abi", "check", "--target", "aiter", "--root", root)
        assert (gone.status, "no distribution aiter found" in gone.err) == (1, True)

    def test_torch_in_the_same_place_is_taken(self, patchkit: Patchkit, kernel: Path, tmp_path: Path) -> None:
        library = compile_shared(tmp_path / "made", "libc10.so", f"int {EVERYWHERE}(void) {{ return 0; }}\n")
        unpacked_wheel(kernel, {"torch/lib/libc10.so": library.read_bytes()}, name="torch", version="2.99")
        said = patchkit("abi", "check", "--target", "sgl-kernel", "--root", kernel)
        assert f"against torch==2.99 (installed in {kernel})" in said.out
        assert "1 of 2 torch symbols is missing in torch==2.99" in said.out

    def test_torch_itself_is_nothing_to_check(self, patchkit: Patchkit, tmp_path: Path) -> None:
        library = compile_shared(tmp_path / "made", "libc10.so", "int f(void) { return 0; }\n")
        root = unpacked_wheel(
            tmp_path / "r", {"torch/lib/libc10.so": library.read_bytes()}, name="torch", version="2.99"
        )
        said = patchkit("abi", "check", "--target", "torch", "--root", root)
        assert (said.status, "abi diff" in said.err) == (2, True)

    def test_the_pinned_torch_counts_where_none_is_installed(self, patchkit: Patchkit, tmp_path: Path) -> None:
        made = compile_shared(tmp_path / "made", "made.so", calling(EVERYWHERE, OLD_STRING))
        files = {"sgl_kernel/_C.abi3.so": made.read_bytes()}
        root = unpacked_wheel(tmp_path / "kernel", files, requires=("torch==2.8.0",))
        said = patchkit("abi", "check", "--target", "sgl-kernel", "--root", root)
        assert "against torch==2.8.0 (stored facts; none is installed here, the wheel pins it) on" in said.out

    def test_without_any_torch_it_asks_for_one(self, patchkit: Patchkit, kernel: Path) -> None:
        said = patchkit("abi", "check", "--target", "sgl-kernel", "--root", kernel)
        assert (said.status, "--against torch==VERSION" in said.err) == (2, True)

    @pytest.mark.parametrize("against", ["2.8.0", "torch", "torch>=2", "numpy==1.0", "torch==0.1", "!!"])
    def test_odd_choice_of_a_torch_is_a_misuse(self, against: str, patchkit: Patchkit, kernel: Path) -> None:
        said = patchkit("abi", "check", "--target", "sgl-kernel", "--root", kernel, "--against", against)
        assert (said.status, said.out) == (2, "")


class TestMatrix:
    def test_rows_and_columns(self, patchkit: Patchkit) -> None:
        said = patchkit("abi", "matrix", "--engines", "vllm==0.6.3,sglang==0.5.1", "--torch", "2.4.0,2.8.0,2.13.0+cpu")
        assert said.status == 0
        lines = said.out.splitlines()
        assert lines[0].split() == ["2.4.0", "2.8.0", "2.13.0+cpu", "CUDA", "graphs"]
        assert "vllm==0.6.3  fits, of these: 2.4.0" in lines
        rows = [line.split()[:4] for line in lines]
        assert ["_C.abi3.so", "0", "10", "29*"] in rows
        assert ["common_ops.abi3.so", "10", "0", "26*"] in rows

    def test_files_of_one_name_are_told_apart_by_their_directory(self, patchkit: Patchkit) -> None:
        said = patchkit("abi", "matrix", "--engines", "sglang==0.5.23", "--torch", "2.14.1")
        names = [line.split()[0] for line in said.out.splitlines()]
        assert {"sm90/common_ops.abi3.so", "sm100/common_ops.abi3.so", "flash_ops.abi3.so"} <= set(names)
        assert "common_ops.abi3.so" not in names

    @pytest.mark.parametrize(("version", "nearest"), [("2.4.1", "2.4.0"), ("2.5.0", "2.5.1"), ("2.99", "2.14.1")])
    def test_release_that_is_not_stored_is_answered_with_the_nearest(
        self, version: str, nearest: str, patchkit: Patchkit
    ) -> None:
        said = patchkit("abi", "matrix", "--torch", version)
        assert (said.status, f"({nearest} is nearest)" in said.err) == (2, True)

    def test_page_and_document(self, patchkit: Patchkit, tmp_path: Path) -> None:
        page = tmp_path / "m.html"
        arguments = ("--engines", "vllm==0.6.3", "--torch", "2.8.0", "--html", page, "--json")
        document = patchkit("abi", "matrix", *arguments).document
        assert [len(row["cells"][0]["missing"]) for row in document["rows"]] == [10, 10, 6, 8]
        assert "c10::cuda::SetDevice(signed char)" in page.read_text()

    def test_page_that_cannot_be_written_is_said(self, patchkit: Patchkit, tmp_path: Path) -> None:
        said = patchkit("abi", "matrix", "--engines", "vllm==0.6.3", "--html", tmp_path / "no" / "m.html")
        assert (said.status, "cannot be written" in said.err) == (1, True)

    def test_interpreter_without_a_torch_is_said(self, patchkit: Patchkit, tmp_path: Path) -> None:
        said = patchkit("abi", "matrix", "--engines", "vllm==0.6.3", "--python", tmp_path / "none")
        assert (said.status, "no interpreter" in said.err) == (1, True)


class TestEnv:
    def test_what_cannot_share_an_environment_is_refused(self, patchkit: Patchkit) -> None:
        said = patchkit("abi", "env", "vllm==0.6.3", "sglang==0.5.1")
        assert said.status == 1
        assert "  ==2.4.0  by vllm==0.6.3\n  ==2.8.0  by sglang[srt]==0.5.1\n" in said.out
        assert "verdict: they cannot share an environment" in said.out
        document = patchkit("abi", "env", "vllm==0.6.3", "sglang==0.5.1", "--json").document
        assert document["next"] == "give each an environment of its own"
        assert f"next: {document['next']}\n" in said.out

    def test_document(self, patchkit: Patchkit) -> None:
        document = patchkit("abi", "env", "vllm==0.10.2", "sgl-kernel==0.3.5", "--json").document
        assert document["possible"] is True
        assert document["torches"] == ["2.8.0"]

    @pytest.mark.parametrize("version", ["abc", "3", "2.7", "3.12.1", ""])
    def test_a_python_that_is_none_is_a_misuse(self, version: str, patchkit: Patchkit) -> None:
        said = patchkit("abi", "env", "vllm==0.6.3", "--python-version", version)
        assert (said.status, "takes one like 3.12" in said.err) == (2, True)

    def test_everything_is_shown_on_demand(self, patchkit: Patchkit) -> None:
        said = patchkit("abi", "env", "vllm==0.10.2", "sglang==0.5.1", "--all")
        assert "numpy: " in said.out

    def test_unknown_engine_is_a_misuse(self, patchkit: Patchkit) -> None:
        assert patchkit("abi", "env", "vllm==0.0.1").status == 2


class TestDiff:
    def test_breaking_change_is_refused(self, patchkit: Patchkit) -> None:
        said = patchkit("abi", "diff", "vllm==0.6.3", "vllm==0.8.5")
        assert said.status == 1
        assert "operator, vllm/_C.abi3.so: " in said.out
        assert said.out.endswith("verdict: breaking\n")

    def test_same_release_is_done(self, patchkit: Patchkit) -> None:
        assert patchkit("abi", "diff", "torch==2.8.0", "torch==2.8.0").status == 0

    @needs_compiler
    def test_two_files_are_compared(self, patchkit: Patchkit, tmp_path: Path) -> None:
        one = compile_shared(tmp_path, "one.so", "int f(void) { return 1; }")
        two = compile_shared(tmp_path, "two.so", "int f(void) { return 1; } int g(void) { return 2; }")
        assert patchkit("abi", "diff", one, two).status == 0
        said = patchkit("abi", "diff", two, one, "--json")
        assert (said.status, [change["symbol"] for change in said.document["changes"]]) == (1, ["g"])

    def test_two_different_things_are_a_misuse(self, patchkit: Patchkit) -> None:
        assert patchkit("abi", "diff", "torch==2.8.0", "vllm==0.6.3").status == 2

    @pytest.mark.parametrize("name", ["nothing", "my-build.json", "my-build.so"])
    def test_a_file_that_is_not_there_is_a_misuse(self, patchkit: Patchkit, name: str) -> None:
        said = patchkit("abi", "diff", "vllm==0.33.0", name)
        assert (said.status, f"{name}: cannot be read\n  there is no such file" in said.err) == (2, True)
        assert patchkit("abi", "diff", name, "vllm==0.33.0").status == 2
        assert patchkit("abi", "matrix", "--engines", "my-build.json").status == 2


@needs_compiler
class TestSnapshot:
    def test_it_is_written_and_is_an_engine_of_the_matrix(
        self, patchkit: Patchkit, kernel: Path, tmp_path: Path
    ) -> None:
        file = tmp_path / "k.json"
        said = patchkit("abi", "snapshot", "--target", "sgl-kernel", "--root", kernel, "-o", file)
        assert said.out == f"sgl-kernel==9.9.9: 1 shared object, written to {file}\n"
        assert json.loads(file.read_text())["schema"] == 1
        document = patchkit("abi", "matrix", "--engines", file, "--torch", "2.6.0,2.8.0", "--json").document
        assert [len(cell["missing"]) for cell in document["rows"][0]["cells"]] == [0, 1]

    def test_without_a_file_it_goes_to_stdout(self, patchkit: Patchkit, kernel: Path) -> None:
        assert patchkit("abi", "snapshot", "--target", "sgl-kernel", "--root", kernel).document["layouts"] == {}

    def test_snapshots_are_packed(self, patchkit: Patchkit, kernel: Path, tmp_path: Path) -> None:
        file = tmp_path / "k.json"
        patchkit("abi", "snapshot", "--target", "sgl-kernel", "--root", kernel, "-o", file)
        said = patchkit("abi", "snapshot", "--pack", tmp_path / "facts", file)
        assert said.status == 0
        assert (tmp_path / "facts" / "wheels" / "sgl-kernel==9.9.9.json.z").is_file()

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("distribution", "../../kernel"),
            ("distribution", "\ud800"),
            ("distribution", ""),
            ("version", "newest"),
            ("version", "1/../2"),
            ("exports", {"libc10.so": ["f" * 17]}),
            ("exports", {f"lib{one}.so": [] for one in range(9)}),
        ],
    )
    def test_what_is_no_release_is_not_packed(
        self, patchkit: Patchkit, kernel: Path, tmp_path: Path, key: str, value: object
    ) -> None:
        file = tmp_path / "k.json"
        patchkit("abi", "snapshot", "--target", "sgl-kernel", "--root", kernel, "-o", file)
        document = json.loads(file.read_text())
        (document if key in document else document["wheel"])[key] = value
        file.write_text(json.dumps(document))
        assert patchkit("abi", "snapshot", "--pack", tmp_path / "facts", file).status == 1
        assert not (tmp_path / "facts").exists()

    def test_engine_with_a_damaged_library_fits_nothing(self, patchkit: Patchkit, kernel: Path, tmp_path: Path) -> None:
        file = tmp_path / "k.json"
        (kernel / "sgl_kernel" / "_C.abi3.so").write_bytes(b"")
        patchkit("abi", "snapshot", "--target", "sgl-kernel", "--root", kernel, "-o", file)
        said = patchkit("abi", "matrix", "--engines", file, "--torch", "2.6.0")
        assert "sgl-kernel==9.9.9 sgl_kernel/_C.abi3.so: cannot be read" in said.out
        [one] = patchkit("abi", "matrix", "--engines", file, "--torch", "2.6.0", "--json").document["unreadable"]
        assert one["path"] == "sgl_kernel/_C.abi3.so"

    def test_half_a_choice_is_a_misuse(self, patchkit: Patchkit, kernel: Path, tmp_path: Path) -> None:
        file = tmp_path / "k.json"
        file.write_text("{}")
        assert patchkit("abi", "snapshot", "--pack", tmp_path / "facts").status == 2
        assert patchkit("abi", "snapshot", file).status == 2
        assert patchkit("abi", "snapshot", "--pack", tmp_path / "facts", file).status == 1

    def test_file_that_cannot_be_written_is_said(self, patchkit: Patchkit, kernel: Path, tmp_path: Path) -> None:
        file = tmp_path / "no" / "k.json"
        said = patchkit("abi", "snapshot", "--target", "sgl-kernel", "--root", kernel, "-o", file)
        assert (said.status, "cannot be written" in said.err) == (1, True)


@pytest.mark.parametrize("name", ["check", "explain", "matrix", "env", "diff", "snapshot"])
def test_help_has_an_example(name: str, patchkit: Patchkit) -> None:
    said = patchkit("abi", name, "--help")
    assert said.status == 0
    assert f"patchkit abi {name} " in said.out
