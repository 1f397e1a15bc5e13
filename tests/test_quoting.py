"""Words as one types them: a shell reads them as they were, and they stand on one line."""

from __future__ import annotations

import os
import subprocess

import pytest

from patchkit.quoting import typed

PLAIN = ["plain", "a b", "it's", "-opt", "$(touch HACK)", "`x`", "back\\slash", "", "ü"]
WORDS = [*PLAIN, "new\nline", "it's\nü\\", "\x1b[1m", "\udcff"]


@pytest.mark.parametrize("word", WORDS, ids=ascii)
def test_a_shell_reads_a_word_as_it_was(word: str) -> None:
    line = typed("printf", "%s", word)
    assert line.isprintable()
    said = subprocess.run(["bash", "-c", line], check=True, capture_output=True).stdout
    assert said == os.fsencode(word)
