"""Decimal fractions, for which Kconfig has no type: what the comment `# patchkit: decimal > 0` asks of a string."""

from __future__ import annotations

import operator

from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

EXAMPLE = "# patchkit: decimal > 0 <= 8"
_MARK = compile_lazily(r"\s*#\s*patchkit:(.*)")
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?"
_PLAIN = compile_lazily(_NUMBER)
_DECLARED = compile_lazily(rf"\s*decimal((?:\s*[<>]=?\s*{_NUMBER})*)\s*")
_BOUND = compile_lazily(rf"([<>]=?)\s*({_NUMBER})")
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, kw_only=True, slots=True)
class Decimal:
    """A string that is a decimal number. `bounds` are pairs of a comparison and a number, as they are written."""

    bounds: tuple[tuple[str, str], ...]

    @property
    def words(self) -> str:
        """What a value has to be."""
        bounds = " and".join(f" {sign} {number}" for sign, number in self.bounds)
        examples = (f", as in {one}" for one in ("0.5", "1.5", "-0.5") if self.takes(one))
        return f"a decimal number{bounds}{next(examples, '')}"

    def takes(self, text: str) -> bool:
        """Tell whether a text is such a number, finite as what reads it has floats."""
        if not _PLAIN.fullmatch(text) or abs(float(text)) == float("inf"):
            return False
        return all(_COMPARE[sign](float(text), float(number)) for sign, number in self.bounds)


def is_mark(line: str) -> bool:
    """Tell whether a line of a Kconfig is a comment that is meant for patchkit."""
    return _MARK.match(line) is not None


def parse_mark(line: str) -> Decimal | None:
    """Read such a comment; None for one that says nothing known."""
    mark = _MARK.match(line)
    declared = _DECLARED.fullmatch(mark[1]) if mark is not None else None
    if declared is None:
        return None
    return Decimal(bounds=tuple((found[1], found[2]) for found in _BOUND.finditer(declared[1])))
