"""How arguments travel: what the rules say is what real compilers do, on x86-64 and on AArch64."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from patchkit.abi.arguments import Machine, PassedType, Scalar, Way, travel
from patchkit.abi.probe import Probe, run_probe

Compiled = tuple[Machine, dict[str, tuple[Way, ...]], str]
COMPILERS = {Machine.AMD64: "g++", Machine.AARCH64: "aarch64-linux-gnu-g++"}
PREAMBLE = """
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>
struct TwoDoubles { double a, b; };
struct ThreeDoubles { double a, b, c; };
struct FourFloats { float a[4]; };
struct FiveFloats { float a[5]; };
struct FloatPair { float a, b; };
struct IntFloat { int a; float b; };
struct FloatThenLong { float a; long b; };
struct LongThenDouble { long a; double b; };
struct DoubleOrLong { union { double a; long b; }; };
struct TwoUnionFloats { union { float a; float b; }; float c; };
struct Seventeen { char a[17]; };
struct Three { char a[3]; };
struct __attribute__((packed)) Packed { char a; long b; };
struct Empty { };
struct HasEmptyBase : Empty { double a; };
struct Derived : TwoDoubles { double c; };
struct Bits { unsigned a : 3; unsigned long b : 40; };
struct alignas(16) Aligned { long a; };
struct Wide { __int128 a; };
struct LongDouble { long double a; };
struct Nested { TwoDoubles a; };
struct Mixed { FloatPair a; int b; };
struct WithDestructor { ~WithDestructor(); long a; };
struct WithCopy { WithCopy(const WithCopy &); long a; };
struct WithMove { WithMove(WithMove &&); long a; };
struct DefaultedCopy { DefaultedCopy(const DefaultedCopy &) = default; long a; };
struct WithConstructor { WithConstructor(); long a; };
struct Virtual { virtual int f(); };
struct MovesOnly { MovesOnly(MovesOnly &&) = default; long a; };
enum class Small : signed char { one };
using Function = void (*)(int);
using Handle = std::unique_ptr<int>;
"""
TYPES = (
    "bool", "signed char", "int64_t", "float", "double", "long double", "__int128", "Small", "Function", "char *",
    "const std::string &", "TwoDoubles", "ThreeDoubles", "FourFloats", "FiveFloats", "FloatPair", "IntFloat",
    "FloatThenLong", "LongThenDouble", "DoubleOrLong", "TwoUnionFloats", "Seventeen", "Three", "Packed", "Empty",
    "HasEmptyBase", "Derived", "Bits", "Aligned", "Wide", "LongDouble", "Nested", "Mixed", "WithDestructor", "WithCopy",
    "WithMove", "DefaultedCopy", "WithConstructor", "Virtual", "MovesOnly", "std::string", "std::string_view", "Handle",
    "std::shared_ptr<int>", "std::vector<long>", "std::optional<int64_t>", "std::optional<double>",
    "std::optional<float>", "std::optional<bool>", "std::optional<std::string>", "std::optional<TwoDoubles>",
    "std::tuple<long, long>", "std::pair<float, float>",
)  # fmt: skip
# The address of a parameter that is a reference is that of the reference, which is a scalar.
SPELLED = tuple("Reference" if name.endswith("&") else name for name in TYPES)
SOURCE = PREAMBLE + "struct Reference { const std::string &a; };\nextern const void *volatile sink;\n"


@pytest.fixture(scope="module", params=COMPILERS, ids=lambda machine: machine.value)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Machine, type -> (predicted ways), assembly of three functions for each type."""
    machine: Machine = request.param
    compiler = COMPILERS[machine]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    probe = Probe(preamble=(SOURCE,), types=tuple(zip(TYPES, SPELLED, strict=True)), includes=())
    predicted = {one.passed.name: travel(one.passed, machine) for one in run_probe(probe, compiler)}
    directory = tmp_path_factory.mktemp(machine.value)
    functions = [
        f"using type_{place} = {name};\n"
        f'extern "C" long integers_{place}(type_{place}, long marker) {{ return marker; }}\n'
        f'extern "C" double vectors_{place}(type_{place}, double marker) {{ return marker; }}\n'
        + (
            f'extern "C" void address_{place}(type_{place} a) {{ sink = &reinterpret_cast<const char &>(a); }}\n'
            if not name.endswith("&")
            else ""
        )
        for place, name in enumerate(TYPES)
    ]
    (directory / "f.cpp").write_text(SOURCE + "\n".join(functions))
    arguments = [compiler, "-std=gnu++17", "-O2", "-w", "-S", "f.cpp", "-o", "f.s", "-fno-asynchronous-unwind-tables"]
    subprocess.run(arguments, cwd=directory, check=True)
    return machine, predicted, (directory / "f.s").read_text()


def _body(assembly: str, name: str) -> str:
    match = re.search(rf"^{name}:\n(.*?)^\t\.size\t{name}", assembly, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


AMD64_INTEGERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")


def _integers_before(machine: Machine, body: str) -> int:
    """Return how many integer registers the first argument took: the marker is in the next one."""
    if machine is Machine.AMD64:
        (register,) = re.findall(r"movq\t%(\w+), %rax", body)
        return AMD64_INTEGERS.index(register)
    moved = re.findall(r"mov\tx0, x(\d)", body)
    return int(moved[0]) if moved else 0


def _vectors_before(machine: Machine, body: str) -> int:
    pattern = r"movap[sd]\t%xmm(\d), %xmm0" if machine is Machine.AMD64 else r"fmov\td0, d(\d)"
    moved = re.findall(pattern, body)
    return int(moved[0]) if moved else 0


@pytest.mark.parametrize("name", TYPES)
def test_the_registers_that_are_predicted_are_those_that_the_compiler_takes(compiled: Compiled, name: str) -> None:
    machine, predicted, assembly = compiled
    ways = predicted[name]
    place = TYPES.index(name)
    integers = sum(way in (Way.INTEGER, Way.ADDRESS) for way in ways)
    assert _integers_before(machine, _body(assembly, f"integers_{place}")) == integers
    assert _vectors_before(machine, _body(assembly, f"vectors_{place}")) == ways.count(Way.VECTOR)


@pytest.mark.parametrize("name", [name for name in TYPES if not name.endswith("&")])
def test_an_address_is_the_argument_itself_and_a_copy_lies_on_the_stack(compiled: Compiled, name: str) -> None:
    machine, predicted, assembly = compiled
    body = _body(assembly, f"address_{TYPES.index(name)}")
    if machine is Machine.AMD64:
        # through a GOT entry the address of `sink` comes first
        assert bool(re.search(r"movq\t%rdi, (?:sink|\(%r)", body)) == (predicted[name] == (Way.ADDRESS,))
        assert bool(re.search(r"leaq\t8\(%rsp\)", body)) == (predicted[name] == (Way.STACK,))
    else:
        is_address = "sp" not in body and re.search(r"str\tx0, \[x", body) is not None
        assert is_address == (predicted[name] == (Way.ADDRESS,))


@pytest.mark.parametrize(
    ("name", "amd64", "aarch64"),
    [
        ("int64_t", (Way.INTEGER,), (Way.INTEGER,)),
        ("std::string", (Way.ADDRESS,), (Way.ADDRESS,)),
        ("ThreeDoubles", (Way.STACK,), (Way.VECTOR,) * 3),
        ("Seventeen", (Way.STACK,), (Way.ADDRESS,)),
        ("std::optional<double>", (Way.VECTOR, Way.INTEGER), (Way.INTEGER, Way.INTEGER)),
        ("IntFloat", (Way.INTEGER,), (Way.INTEGER,)),
        ("Empty", (), (Way.INTEGER,)),
    ],
)
def test_the_two_machines_differ_where_their_rules_do(
    compiled: Compiled, name: str, amd64: tuple[Way, ...], aarch64: tuple[Way, ...]
) -> None:
    machine, predicted, _ = compiled
    assert predicted[name] == {Machine.AMD64: amd64, Machine.AARCH64: aarch64}[machine]


def test_a_class_that_becomes_trivial_travels_otherwise() -> None:
    scalars = (Scalar(offset=0, size=8, kind="integer"),)
    before = PassedType(name="T", size=8, alignment=8, by_reference=True, scalars=scalars)
    after = PassedType(name="T", size=8, alignment=8, by_reference=False, scalars=scalars)
    assert [travel(one, Machine.AMD64) for one in (before, after)] == [(Way.ADDRESS,), (Way.INTEGER,)]
