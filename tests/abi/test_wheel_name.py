"""The name of a .whl file beside its metadata, the machine and the Python."""

from __future__ import annotations

import pytest

from patchkit.abi.facts import WheelFacts
from patchkit.abi.wheel_name import Destination, audit_name

HERE = Destination(machine="x86_64", glibc="2.36", python_version="3.11", chosen=True)
ANY_LINUX = Destination(machine="", glibc="2.31", python_version="3.11", chosen=True)
GUESSED = Destination(machine="x86_64", glibc="", python_version="3.11", chosen=False)


def _audited(file: str, *tags: str, destination: Destination = HERE, version: str = "0.6.3+cpu") -> list[str]:
    wheel = WheelFacts(
        distribution="sgl-kernel",
        version=version,
        file=file,
        sha256="",
        tags=tags,
        requires_python="",
        requires=(),
        extras=(),
        objects=(),
    )
    return [f"{one.kind}: {one.words}{' (broken)' if one.broken else ''}" for one in audit_name(wheel, destination)]


@pytest.mark.parametrize(
    "file",
    [
        "sgl_kernel-0.6.3+cpu-cp38-abi3-manylinux1_x86_64.whl",
        "SGL.Kernel-0.6.3+cpu-1-cp311-cp311-linux_x86_64.whl",
        "sgl_kernel-0.6.3+cpu-py2.py3-none-any.whl",
        "sgl_kernel-0.6.3+cpu-cp310.cp311-cp310.cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "sgl_kernel-0.6.3+cpu-py38-none-any.whl",
        "",
    ],
)
def test_name_that_is_true_and_for_here_has_no_finding(file: str) -> None:
    assert _audited(file) == []


@pytest.mark.parametrize(
    ("file", "kind", "said"),
    [
        ("wheel.whl", "file name", "is no name of a wheel, so that pip refuses it: {expected} would be one"),
        ("vllm-0.6.3+cpu-py3-none-any.whl", "file name", "says vllm, its METADATA sgl-kernel: pip refuses it"),
        ("{0}-0.6.3-{1}.whl", "file name", "says version 0.6.3, its METADATA 0.6.3+cpu: pip refuses it"),
        ("{0}-odd-{1}.whl", "file name", "says version odd, its METADATA 0.6.3+cpu: pip refuses it"),
        ("{0}-{2}-py3-none-linux_aarch64.whl", "platform tag", "is for linux_aarch64, and {here}"),
        ("{0}-{2}-py3-none-musllinux_1_2_x86_64.whl", "platform tag", "is for musllinux_1_2_x86_64, and {here}"),
        ("{0}-{2}-cp39-cp39-linux_x86_64.whl", "python tag", "is for cp39-cp39, and this is Python 3.11"),
        ("{0}-{2}-cp312-abi3-linux_x86_64.whl", "python tag", "is for cp312-abi3, and this is Python 3.11"),
    ],
)
def test_name_that_pip_refuses_or_that_is_for_elsewhere_is_broken(file: str, kind: str, said: str) -> None:
    name = file.format("sgl_kernel", "py3-none-any", "0.6.3+cpu")
    expected = "sgl_kernel-0.6.3+cpu-py3-none-any.whl"
    words = said.format(expected=expected, here="this is Linux with glibc on x86_64")
    assert _audited(name) == [f"{kind}: {name} {words} (broken)"]


def test_tags_that_differ_from_those_inside_are_told() -> None:
    (said,) = _audited("sgl_kernel-0.6.3+cpu-cp38-abi3-manylinux1_x86_64.whl", "cp38-abi3-linux_x86_64")
    assert said.endswith(
        "is tagged cp38-abi3-manylinux1_x86_64, and its WHEEL says cp38-abi3-linux_x86_64: pip goes by the name"
    )


@pytest.mark.parametrize(
    ("platforms", "destination", "said"),
    [
        (
            "manylinux_2_39_x86_64",
            HERE,
            "is for glibc 2.39 or newer, and this machine has 2.36",
        ),
        (
            "manylinux_2_34_x86_64",
            ANY_LINUX,
            "is for glibc 2.34 or newer, and that system has 2.31",
        ),
        ("manylinux_2_39_x86_64.manylinux_2_17_aarch64", HERE, "is for glibc 2.39 or newer, and this machine has 2.36"),
        ("manylinux_2_36_x86_64", HERE, ""),
        ("manylinux_2_39_x86_64.manylinux2014_x86_64", HERE, ""),
        ("manylinux_2_39_x86_64.linux_x86_64", HERE, ""),
        ("manylinux_2_39_x86_64", GUESSED, ""),
    ],
)
def test_glibc_of_the_tag_is_compared_with_the_systems(platforms: str, destination: Destination, said: str) -> None:
    name = f"sgl_kernel-0.6.3+cpu-cp38-abi3-{platforms}.whl"
    expected = [f"platform tag: {name} {said}: pip refuses it (broken)"] if said else []
    assert _audited(name, destination=destination) == expected


def test_another_system_is_any_linux_with_glibc() -> None:
    assert _audited("sgl_kernel-0.6.3+cpu-py3-none-linux_aarch64.whl", destination=ANY_LINUX) == []
    (said,) = _audited("sgl_kernel-0.6.3+cpu-py3-none-win_amd64.whl", destination=ANY_LINUX)
    assert said.endswith("is for win_amd64, and that is no such system (broken)")


def test_python_that_nobody_named_is_no_fault() -> None:
    (said,) = _audited("sgl_kernel-0.6.3+cpu-cp39-cp39-linux_x86_64.whl", destination=GUESSED)
    assert said.endswith("is for cp39-cp39, and this is Python 3.11; --python EXE names the one that it is for")
