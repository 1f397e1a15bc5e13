"""How a script in an engine's interpreter is asked and answers: two JSON files. Its stdout and stderr are the log."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def asked() -> dict:
    return json.loads(Path(sys.argv[1]).read_text())


def answer(facts: dict) -> None:
    """Write the answer; to be called once, when all runs are done."""
    Path(sys.argv[2]).write_text(json.dumps(facts))
