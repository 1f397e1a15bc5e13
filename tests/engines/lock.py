"""Makes the locks in requirements/ anew, exact pins with hashes: `python3.11 -m tests.engines.lock [NAME...]`.

pip resolves, with torch's pin among the requirements, and reports the file that it chose for each release. torch itself
is left out (torch.txt says why), and so is what costs hundreds of megabytes and is never imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
UNUSED = {"vllm-0.32.0": {"triton"}}
"""What others require though the engine never imports it on a CPU."""


def lock(source: Path) -> str:
    """Return the text of a lock: every distribution but torch, one file each."""
    left_out = {"torch", *UNUSED.get(source.stem, ())}
    chosen = sorted((_name(item), item) for item in _resolve(source))
    lines = [f"{name}=={_version(item)} --hash=sha256:{_sha256(item)}" for name, item in chosen if name not in left_out]
    return f"# Made by tests/engines/lock.py from {source.name}.\n" + "\n".join(lines) + "\n"


def _resolve(source: Path) -> list[dict[str, Any]]:
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed"]
        inputs = ["-r", str(source), "-r", str(REQUIREMENTS / "torch.txt"), "--report", report.name]
        subprocess.run([*command, "--only-binary", ":all:", *inputs], check=True)
        installed: list[dict[str, Any]] = json.loads(Path(report.name).read_bytes())["install"]
        return installed


def _name(item: dict[str, Any]) -> str:
    return str(item["metadata"]["name"]).lower().replace("_", "-").replace(".", "-")


def _version(item: dict[str, Any]) -> str:
    return str(item["metadata"]["version"])


def _sha256(item: dict[str, Any]) -> str:
    return str(item["download_info"]["archive_info"]["hashes"]["sha256"])


if __name__ == "__main__":
    for source in sorted(REQUIREMENTS.glob("*.in")):
        if len(sys.argv) == 1 or source.stem in sys.argv[1:]:
            source.with_suffix(".txt").write_text(lock(source))
