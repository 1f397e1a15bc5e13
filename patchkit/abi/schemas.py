"""The schema strings of operators in a shared object: `silu_and_mul(Tensor! out, Tensor input) -> ()`.

They are what an engine gave to `torch::Library::def`: the names, order and types that its Python side calls. Found by
their form among the read-only strings; a schema that torch infers from the C++ function has no string.
"""

from __future__ import annotations

from patchkit.abi.elf_file import ElfFile
from patchkit.pattern import compile_lazily

_TYPE = (
    rb"(?:Tensor|int|SymInt|float|bool|str|Scalar|Device|Generator|Layout|MemoryFormat|Stream|Dict|Any|None|__torch__)"
)
_SCHEMA = compile_lazily(
    rb"([A-Za-z_][A-Za-z0-9_:]{0,99}(?:\.[A-Za-z0-9_]{1,60})?\(\s*(?:|(?:" + _TYPE + rb"|\*)[^\0]{0,8000}?)\))\s*->\s*"
    # A compiler that builds a std::string from a literal may keep its last bytes elsewhere: then the result is cut off.
    rb"(\((?:[^()\0]|\([^()\0]*\)){0,500}\)|"
    + _TYPE
    + rb"[A-Za-z0-9_.]*(?:\([a-z0-9]{1,40}!?[^()\0]{0,200}\))?(?:\[[0-9]*\])?\??)?"
)
_SPACE = compile_lazily(r"\s+")
_CHUNK = 1 << 22
_OVERLAP = 1 << 14
_MOST_BYTES = 1 << 27


def read_schemas(elf: ElfFile) -> tuple[str, ...]:
    """Return the schemas in canonical spacing, sorted; `?` for a result that does not stand with the rest.

    At most 128 MiB of read-only data are looked through.
    """
    found: set[str] = set()
    for section in elf.sections():
        if section.name.startswith(".rodata"):
            end = section.offset + min(section.size, _MOST_BYTES)
            for start in range(section.offset, end, _CHUNK):
                content = elf.read(start, min(_CHUNK + _OVERLAP, end - start), "read-only data")
                found.update(_schemas_in(content))
    return tuple(sorted(found))


def operator_name(schema: str) -> str:
    """Return the name with its overload: `gemm.out` of `gemm.out(Tensor a, *, Tensor! out) -> ()`."""
    return schema.partition("(")[0]


def _schemas_in(content: bytes) -> set[str]:
    found = set()
    place = content.find(b"->")
    while place >= 0:
        start, end = content.rfind(b"\0", 0, place) + 1, content.find(b"\0", place)
        if end < 0:
            break
        if match := _SCHEMA.match(content, start, end):
            arguments, result = (
                match[1].decode("ascii", "backslashreplace"),
                (match[2] or b"?").decode("ascii", "replace"),
            )
            found.add(f"{_canonical(arguments)} -> {_canonical(result)}")
        place = content.find(b"->", end)
    return found


def _canonical(schema: str) -> str:
    text = _SPACE.sub(" ", schema).strip()
    for loose, tight in (("( ", "("), (" )", ")"), (" ,", ",")):
        text = text.replace(loose, tight)
    return text
