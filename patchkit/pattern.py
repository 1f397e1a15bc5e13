"""Regular expressions that are compiled when they are first used, not when their module is imported.

A command imports dozens of patterns and uses a few of them; compiling one takes as long as importing a small module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

Text: TypeAlias = "str | bytes"

if TYPE_CHECKING:
    compile_lazily = re.compile
else:

    def compile_lazily(text: Text, flags: int = 0) -> _LazyPattern:
        """Return what `re.compile` returns, as far as its methods and attributes go, without compiling it yet."""
        return _LazyPattern(text, flags)


class _LazyPattern:
    def __init__(self, text: Text, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Look a method up on the compiled pattern, and keep it: the next call finds it at once."""
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found
