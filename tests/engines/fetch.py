"""Fetches an engine's pinned archive with pip, which checks the hash, and unpacks it."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

from tests.engines.recipe import Recipe, python_of

# pip asks an sdist's build backend for metadata before it hands the file out. vLLM's wants torch, a compiler and git to
# answer; this one has the answer. What is built from the sdist is built by extension.py.
_BACKEND = """import os

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    name, version = os.environ["ANSWER"].split("==")
    home = os.path.join(directory, "{}-{}.dist-info".format(name, version))
    os.makedirs(home)
    with open(os.path.join(home, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: {}\\nVersion: {}\\n".format(name, version))
    return os.path.basename(home)
"""


def download(recipe: Recipe, directory: Path, *options: str, **environment: str) -> Path:
    """Return the downloaded archive; pip has checked its hash."""
    kept = directory / "archive"
    kept.mkdir(parents=True)
    pinned = directory / "pinned.txt"
    pinned.write_text(f"{recipe.requirement} --hash=sha256:{recipe.sha256}\n")
    command: list[str | Path] = [
        python_of(recipe),
        "-m",
        "pip",
        "download",
        "-qq",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    asked = [*options, "--require-hashes", "-r", str(pinned), "-d", str(kept)]
    # In a directory of its own: below a checkout of something, pip and backends find more than they should.
    subprocess.run([*command, *asked], check=True, cwd=directory, env={**os.environ, **environment})
    (archive,) = kept.iterdir()
    return archive


def fetch_sdist(recipe: Recipe, directory: Path) -> Path:
    """Return the unpacked sdist."""
    backend = directory / "backend" / "setuptools"
    backend.mkdir(parents=True)
    (backend / "__init__.py").touch()
    (backend / "build_meta.py").write_text(f"{_BACKEND}\nimport sys\n__legacy__ = sys.modules[__name__]\n")
    options = ("--no-build-isolation", "--no-binary", ":all:")
    archive = download(recipe, directory, *options, PYTHONPATH=str(backend.parent), ANSWER=recipe.requirement)
    (directory / "sdist").mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", directory / "sdist"], check=True)
    (unpacked,) = (directory / "sdist").iterdir()
    return unpacked


def unpack_wheel(archive: Path, tree: Path) -> None:
    """Unpack a wheel: the package beside its dist-info, as pip lays them out."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tree)
