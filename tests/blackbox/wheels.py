"""Small made-up engines: an unpacked wheel as a tree, or a wheel file that pip and uv install.

They are of versions (vllm 0.1.0, sglang 0.1.3) that no shipped series is for.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

MODULE = b'"""Seen from outside."""\n\nimport os\n\nRATE = 1\nLIMIT = 3\n\n\ndef rate():\n    return RATE * LIMIT\n'
CHANGED = MODULE.replace(b"RATE = 1\n", b"RATE = 2\n")
DIFF = """\
diff --git a/vllm/engine.py b/vllm/engine.py
--- a/vllm/engine.py
+++ b/vllm/engine.py
@@ -2,7 +2,7 @@
 
 import os
 
-RATE = 1
+RATE = 2
 LIMIT = 3
 
 
"""  # noqa: W293 - a diff's empty context lines are a blank
NEW_FILE = """\
diff --git a/vllm/extra.py b/vllm/extra.py
new file mode 100644
--- /dev/null
+++ b/vllm/extra.py
@@ -0,0 +1,2 @@
+import os
+EXTRA = 1
"""


def engine(name: str = "vllm", version: str = "0.1.0", **modules: bytes) -> dict[str, bytes]:
    """Return the files of an engine: `engine.py`, `layers/attention.py` and what else is given (dots for slashes)."""
    files = {
        f"{name}/__init__.py": f'__version__ = "{version}"\n'.encode(),
        f"{name}/engine.py": MODULE,
        f"{name}/layers/__init__.py": b"",
        f"{name}/layers/attention.py": MODULE,
    }
    return files | {f"{name}/{module.replace('.', '/')}.py": content for module, content in modules.items()}


def wheel_tree(name: str, version: str, files: Mapping[str, bytes], *, installer: str = "") -> dict[str, bytes]:
    """Add the dist-info to an engine's files."""
    home = f"{name}-{version}.dist-info"
    whole = {
        **files,
        f"{home}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{home}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if installer:
        whole[f"{home}/INSTALLER"] = f"{installer}\n".encode()
    rows = [_row(path, content) for path, content in whole.items()]
    return {**whole, f"{home}/RECORD": "".join([*rows, f"{home}/RECORD,,\n"]).encode()}


def wheel_file(directory: Path, name: str, version: str, files: Mapping[str, bytes]) -> Path:
    """Write a wheel that can be installed."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in wheel_tree(name, version, files).items():
            archive.writestr(member, content)
    return path


def write_tree(root: Path, files: Mapping[str, bytes]) -> Path:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def record_of(root: Path, name: str = "*") -> dict[str, str]:
    """Return the RECORD of a distribution, or of the only one below a directory, as path to `hash,size`."""
    (record,) = root.glob(f"{name}-*.dist-info/RECORD")
    with record.open(newline="") as stream:
        return {path: f"{digest},{size}" for path, digest, size in csv.reader(stream)}


def recorded(root: Path, name: str = "*") -> dict[str, str]:
    """Return what RECORD should say of the files that it names; of those that are not there what it says."""
    rows = {}
    for path, row in record_of(root, name).items():
        file = root / path
        known = file.is_file() and not path.endswith("/RECORD")
        rows[path] = _proof(file.read_bytes()) if known else row
    return rows


def _row(path: str, content: bytes) -> str:
    return f"{path},{_proof(content)}\n"


def _proof(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(content)}"
