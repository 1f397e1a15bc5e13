"""Probes: small sources that name types, compiled against headers and read from their DWARF. Nothing of them is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.abi.layout_dwarf import FACTS, VARIABLE, ProbedType, read_probe
from patchkit.errors import RefusedError
from patchkit.process import require_success, run_child
from patchkit.record import dataclass

_PATIENCE_SECONDS = 300.0
# It is linked so that the debug information is whole without relocations, and never loaded. Without the last two
# options gcc writes only a declaration of a class whose vtable is made in another object, and so no members.
DEBUG_OPTIONS = (
    "-shared",
    "-fPIC",
    "-w",
    "-Wfatal-errors",
    "-g",
    "-gdwarf-5",
    "-fno-eliminate-unused-debug-types",
    "-femit-class-debug-always",
)
CPLUSPLUS = "c++"
C = "c"


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What is asked: lines that come first (includes), and per type its name in the answer and its spelling.

    `language` is `c` or `c++`; `standard` goes to -std. `includes` are directories.
    """

    preamble: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    includes: tuple[Path, ...]
    language: str = CPLUSPLUS
    standard: str = "gnu++17"
    options: tuple[str, ...] = ()


def run_probe(probe: Probe, compiler: str) -> tuple[ProbedType, ...]:
    """Compile a probe and read it. RefusedError with the compiler's words when it does not compile."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="patchkit-probe-") as directory:
        built = Path(directory) / "probe.so"
        source = Path(directory) / ("probe.cpp" if probe.language == CPLUSPLUS else "probe.c")
        source.write_text(probe_source(probe))
        arguments = compile_line(probe, compiler, source, built)
        completed = run_child(arguments, timeout=_PATIENCE_SECONDS)
        require_success(completed, hint="check that the headers belong together and that the types are in them")
        return read_probe(built, tuple(name for name, _ in probe.types))


def compile_line(probe: Probe, compiler: str, source: Path, built: Path) -> list[str]:
    """Return the compiler's arguments."""
    includes = [part for path in probe.includes for part in ("-isystem", str(path))]
    return [
        compiler,
        "-x",
        probe.language,
        f"-std={probe.standard}",
        *DEBUG_OPTIONS,
        *probe.options,
        *includes,
        str(source),
        "-o",
        str(built),
    ]


def probe_source(probe: Probe) -> str:
    """Return the source: per type a pointer, whose DWARF leads to the type, and what the compiler says of it."""
    body = [line for place, (_, spelled) in enumerate(probe.types) for line in _asked(probe.language, place, spelled)]
    if probe.language == CPLUSPLUS:
        body = [*_CPLUSPLUS_PREAMBLE, 'extern "C" {', *body, "}"]
    return "\n".join([*probe.preamble, *body]) + "\n"


# Itanium C++ ABI 3.1.2.3: non-trivial for the purposes of calls, and so passed as an address.
_CPLUSPLUS_PREAMBLE = (
    "#include <type_traits>",
    "template <class T> constexpr bool patchkit_travels_as_value =",
    "  std::is_trivially_destructible<T>::value",
    "  && (std::is_copy_constructible<T>::value || std::is_move_constructible<T>::value)",
    "  && (!std::is_copy_constructible<T>::value || std::is_trivially_copy_constructible<T>::value)",
    "  && (!std::is_move_constructible<T>::value || std::is_trivially_move_constructible<T>::value);",
)


def _asked(language: str, place: int, spelled: str) -> tuple[str, ...]:
    """Return the lines for one type. It gets a name first: a function pointer cannot be followed by one."""
    name = f"patchkit_type_{place}"
    if language == CPLUSPLUS:
        alias, extern, align = f"using {name} = {spelled};", "extern ", f"alignof({name})"
        by_reference = f"!patchkit_travels_as_value<{name}>"
    else:
        alias, extern, align = f"typedef __typeof__({spelled}) {name};", "", f"_Alignof({name})"
        by_reference = "0"
    return (
        alias,
        f"{extern}{name} *{VARIABLE}{place};",
        f"{name} *{VARIABLE}{place} = 0;",
        f"{extern}const unsigned long {FACTS}{place}[3];",
        f"const unsigned long {FACTS}{place}[3] = {{sizeof({name}), {align}, {by_reference}}};",
    )


def compiler_version(compiler: str) -> str:
    """Return the first line of what the compiler says of itself."""
    said = require_success(run_child([compiler, "--version"], timeout=60.0)).stdout.decode("utf-8", "replace")
    if not said.strip():
        raise RefusedError(f"{compiler} does not say its version")
    return said.splitlines()[0]


def header_lines(headers: Sequence[str]) -> tuple[str, ...]:
    """Return #include lines for headers that are there by all means, and guarded ones for those marked with `?`."""
    lines: list[str] = []
    for header in headers:
        name = header.removesuffix("?")
        if header.endswith("?"):
            lines += [f"#if __has_include(<{name}>)", f"#include <{name}>", "#endif"]
        else:
            lines.append(f"#include <{name}>")
    return tuple(lines)
