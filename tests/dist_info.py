"""The dist-info that a tree of a released engine gets in the tests, where no installer wrote one."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from pathlib import Path


def write_dist_info(tree: Path, name: str, version: str) -> None:
    """Say which version a tree is: METADATA and a RECORD of every file. vLLM 0.6.3 takes `+cpu` for its platform."""
    home = tree / f"{name}-{version}.dist-info"
    home.mkdir()
    (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (home / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: cp38-abi3-any\n")
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow([path.relative_to(tree).as_posix(), f"sha256={digest}", len(content)])
    writer.writerow([f"{home.name}/RECORD", "", ""])
    (home / "RECORD").write_text(rows.getvalue())
