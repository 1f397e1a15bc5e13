"""Builds the engines of this suite into the cache: `python -m tests.engines.build [--jobs N]`. What is there is kept.

Everything comes from the registries that pip is configured for, pinned and hashed. Two things are looked for on the
machine and, where it is root with apt-get, installed: g++ and the headers of libnuma.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.dist_info import write_dist_info
from tests.engines.extension import compile_extension
from tests.engines.fetch import download, fetch_sdist, unpack_wheel
from tests.engines.recipe import (
    CORPUS,
    HERE,
    MODELS,
    PYTHON_VERSION,
    QK_SCALES,
    RECIPES,
    TOKENS,
    TORCH,
    VLLM_063,
    Recipe,
    cache_root,
    environment_path,
    models_path,
    python_of,
    tree_path,
)

_PACKAGES = ("g++", "libnuma-dev", f"libpython{PYTHON_VERSION}-dev")


class BuildError(Exception):
    """What is missing, and what would bring it."""


def build(recipe: Recipe) -> None:
    """Build the environment, the tree and, with the engine they are made in, the models."""
    keep(environment_path(recipe), lambda path: _build_environment(recipe, path))
    keep(tree_path(recipe), lambda path: _build_tree(recipe, path))
    if recipe is VLLM_063:
        keep(models_path(), _build_models)


def find_interpreter() -> Path:
    """Return a Python of the version that the locks are for, able to make environments."""
    homes = [os.environ.get("PYENV_ROOT", ""), "~/.pyenv", f"~{_user()}/.pyenv"]
    known = [str(path) for home in homes if home for path in Path(home).expanduser().glob("versions/*/bin/python")]
    wanted = f"import sys, ensurepip, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{PYTHON_VERSION}')"
    for candidate in (os.environ.get("PATCHKIT_ENGINES_PYTHON", ""), f"python{PYTHON_VERSION}", sys.executable, *known):
        with contextlib.suppress(OSError):
            if (
                candidate
                and subprocess.run([candidate, "-c", wanted], capture_output=True, check=False).returncode == 0
            ):
                return Path(shutil.which(candidate) or candidate)
    raise BuildError(
        f"no Python {PYTHON_VERSION} with ensurepip and venv; on Debian: apt-get install python3-venv; "
        "elsewhere name one with PATCHKIT_ENGINES_PYTHON"
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def keep(path: Path, make: Callable[[Path], None]) -> None:
    """Make a part unless it is there; only a part with its mark is."""
    mark = path.with_name(f"{path.name}.complete")
    with _locked(path):
        if mark.exists():
            _say(f"{path.name}: kept")
            return
        mark.unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        began = time.monotonic()
        make(path)
        mark.touch()
        _say(f"{path.name}: built in {time.monotonic() - began:.0f} s")


def _build_environment(recipe: Recipe, path: Path) -> None:
    subprocess.run([find_interpreter(), "-m", "venv", path], check=True)
    # Compiled when first imported: most of what is installed never is.
    install: list[str | Path] = [
        path / "bin" / "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        "--no-compile",
        "--no-deps",
    ]
    subprocess.run([*install, "-r", HERE / "requirements" / "torch.txt"], check=True)
    subprocess.run([*install, "--only-binary", ":all:", "--require-hashes", "-r", recipe.lock], check=True)
    asked = "import torch; print(torch.__version__, torch.version.cuda)"
    try:
        said = subprocess.run([path / "bin" / "python", "-c", asked], capture_output=True, text=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        said = error.stderr
    if not said.startswith(TORCH) or not said.endswith(" None\n"):
        raise BuildError(
            f"pip brought another torch than {TORCH} for the CPU ({said.strip()}): point PIP_FIND_LINKS to it"
        )


def _build_tree(recipe: Recipe, path: Path) -> None:
    scratch = path.with_name(f"{path.name}.scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    if recipe.compiled:
        _need_compiler(recipe)
        sdist = fetch_sdist(recipe, scratch)
        shutil.copytree(sdist / recipe.engine, path / recipe.engine, symlinks=True)
        compile_extension(sdist / "csrc", scratch, python_of(recipe), path / recipe.engine / "_C.abi3.so")
        write_dist_info(path, recipe.engine, "0.6.3+cpu")
    else:
        unpack_wheel(download(recipe, scratch, "--only-binary", ":all:"), path)
    shutil.rmtree(scratch)
    # Every copy of the tree starts with the bytecode of the whole engine: the copies are started many times.
    compiling: list[str | Path] = [python_of(recipe), "-W", "ignore", "-m", "compileall", "-qq", path / recipe.engine]
    subprocess.run(compiling, check=False)  # a template that is no Python may lie in a package


def _build_models(path: Path) -> None:
    """Make the models and have the oracle speak of each, at its own softmax scale and at half of it."""
    # One thread: the products are small, and engines are built beside it.
    chosen = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    offline = {**os.environ, **chosen}
    inside = HERE / "inside"
    subprocess.run([python_of(VLLM_063), inside / "models.py", CORPUS, path], check=True, env=offline)
    question = path / "question.json"
    runs = [{"model": str(path / name), "qk_scale": scale} for name in MODELS for scale in QK_SCALES]
    question.write_text(json.dumps({"tokens": TOKENS, "runs": runs}))
    subprocess.run([python_of(VLLM_063), inside / "oracle.py", question, path / "oracle.json"], check=True, env=offline)


def _need_compiler(recipe: Recipe) -> None:
    """See that a program with Python's and libnuma's headers compiles; install what it takes where that is possible."""
    include = "import sysconfig; print(sysconfig.get_paths()['include'])"
    headers = subprocess.run([python_of(recipe), "-c", include], capture_output=True, text=True, check=True).stdout
    probe = ["g++", "-x", "c++", "-E", "-o", "/dev/null", f"-I{headers.strip()}", "-"]
    source = "#include <Python.h>\n#include <numa.h>\n"

    def compiles() -> bool:
        if not shutil.which("g++"):
            return False
        return subprocess.run(probe, input=source, text=True, capture_output=True, check=False).returncode == 0

    if compiles():
        return
    command = f"apt-get install {' '.join(_PACKAGES)}"
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _say(f"no g++ with <Python.h> and <numa.h>: {command}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
        install = ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", *_PACKAGES]
        subprocess.run(install, check=True, env=environment, stdout=subprocess.DEVNULL)
    if not compiles():
        raise BuildError(f"vllm 0.6.3 needs g++ with <Python.h> and <numa.h>; on Debian: {command}")


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name  # HOME may be empty or another


def _say(line: str) -> None:
    sys.stderr.write(f"engines: {line}\n")


def main() -> int:
    """Build all parts, so many engines at once."""
    parser = argparse.ArgumentParser(description="Build the engines of the test-suite.")
    parser.add_argument("--jobs", type=int, default=1, help="engines that are built at once")
    chosen = parser.parse_args()
    began = time.monotonic()
    with ThreadPoolExecutor(chosen.jobs) as pool:
        failures = [f"{recipe.name}: {error}" for recipe, error in _attempts(pool) if error]
    for failure in failures:
        _say(failure)
    _say(f"{time.monotonic() - began:.0f} s in all, in {cache_root()}")
    return bool(failures)


def _attempts(pool: ThreadPoolExecutor) -> Iterator[tuple[Recipe, Exception | None]]:
    def attempt(recipe: Recipe) -> Exception | None:
        try:
            build(recipe)
        except (BuildError, OSError, subprocess.CalledProcessError) as error:
            return error
        return None

    return zip(RECIPES, pool.map(attempt, RECIPES), strict=True)


if __name__ == "__main__":
    sys.exit(main())
