"""The structs of a C header, in the text that cffi reads: what the preprocessor leaves of the header itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from patchkit.errors import RefusedError
from patchkit.pattern import compile_lazily
from patchkit.process import require_success, run_child
from patchkit.record import dataclass

_PATIENCE_SECONDS = 60.0
_MARKER = compile_lazily(r'# \d+ "((?:[^"\\]|\\.)*)"')
_PRAGMA_PACK = compile_lazily(r"#\s*pragma\s+pack")
_ATTRIBUTE = compile_lazily(r"__attribute__\s*\(\((.*?)\)\)(?!\))")
_DEFINED = compile_lazily(r"\b(struct|union)\s+(\w+)\s*\{")
_KEPT = compile_lazily(r"(typedef|enum|struct|union)\b")
_BITS = compile_lazily(r"\w\s*:\s*\w+\s*[,;]")
_ASSERTION = compile_lazily(r"_Static_assert\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """A definition at the top of a header: `text` ends with a semicolon and has no attribute any more.

    `structs` are the named structs that it defines, the outermost last.
    """

    text: str
    packed: bool
    structs: tuple[str, ...]

    @property
    def has_bits(self) -> bool:
        """True when there is a bit-field."""
        return _BITS.search(self.text) is not None

    @property
    def partial(self) -> str:
        """The text with `...;` before the end of the struct: cffi then takes every offset from the compiler.

        It has no such form for a struct with bit-fields: cffi compares what it works out with the compiler's offsets.
        """
        if not self.structs or self.has_bits:
            return self.text
        end = self.text.rindex("}")
        return f"{self.text[:end]} ...; {self.text[end:]}"


def read_declarations(header: Path, compiler: str, includes: Sequence[Path] = ()) -> tuple[Declaration, ...]:
    """Return the types that a header itself defines, in its order; functions and what it includes are left out.

    RefusedError when it does not compile, or for what cffi has no words for: #pragma pack and aligned attributes.
    """
    line = [compiler, "-E", "-x", "c", "-std=gnu11", *(f"-I{path}" for path in includes), str(header)]
    completed = require_success(run_child(line, timeout=_PATIENCE_SECONDS), hint=f"check that {header} compiles as C")
    text = _own_text(completed.stdout.decode("utf-8", "surrogateescape"), str(header))
    return tuple(_declaration(part, header) for part in _top_level(text) if _KEPT.match(part) and _is_type(part))


def struct_names(declarations: Sequence[Declaration]) -> tuple[str, ...]:
    """Return the names of all structs and unions that have one."""
    return tuple(dict.fromkeys(name for one in declarations for name in one.structs))


def _own_text(preprocessed: str, header: str) -> str:
    """Keep the lines that come from the header, by the preprocessor's line markers."""
    kept: list[str] = []
    own = False
    for line in preprocessed.splitlines():
        marker = _MARKER.match(line)
        if marker is not None:
            own = marker[1].replace("\\\\", "\\") == header
        elif own and _PRAGMA_PACK.match(line):
            raise RefusedError(
                f"{header} uses #pragma pack",
                why="  cffi packs a struct or does not",
                hint="write the attribute packed",
            )
        elif own and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept)


def _top_level(text: str) -> Iterator[str]:
    """Split at the semicolons outside of braces and parentheses."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        if sign in "{(":
            depth += 1
        elif sign in "})":
            depth -= 1
        elif sign == ";" and depth == 0:
            yield " ".join(text[start : place + 1].split())
            start = place + 1


def _is_type(part: str) -> bool:
    """True for a definition or a typedef; a function that returns a struct is neither."""
    return ("{" in part or part.startswith("typedef")) and not _ASSERTION.match(part)


def _declaration(part: str, header: Path) -> Declaration:
    attributes = " ".join(match[1] for match in _ATTRIBUTE.finditer(part))
    if "aligned" in attributes:
        raise RefusedError(
            f"{header.name}: an aligned attribute",
            why=f"  {part[:80]}",
            hint="cffi has no words for it; pad the struct",
        )
    names = [match[2] for match in _DEFINED.finditer(part)]
    inner_last = tuple(names[1:] + names[:1])  # the outermost stands first in the text
    return Declaration(text=_ATTRIBUTE.sub("", part), packed="packed" in attributes, structs=inner_last)
