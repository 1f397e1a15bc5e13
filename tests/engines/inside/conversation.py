"""How a script in an engine's interpreter is asked and answers, as long as its standard input is open.

A line of it is a JSON pair: the file with a question, and the file that the answer is put into, whole. Stdout and
stderr are the log.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path


def converse(reply: Callable[[dict], dict]) -> None:
    for line in sys.stdin:
        question, answered = map(Path, json.loads(line))
        facts = reply(json.loads(question.read_text()))
        partial = answered.with_suffix(".partial")
        partial.write_text(json.dumps(facts))
        partial.rename(answered)
