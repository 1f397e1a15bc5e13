"""Stand-ins for the libraries of FlashAttention 2 and 3, compiled once and kept in the cache by their content."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from patchkit.attention.peers import LIBRARY
from tests.blackbox.command import CHECKOUT
from tests.dist_info import write_dist_info
from tests.engines.build import keep
from tests.engines.recipe import HERE, VLLM_063, python_of, standin_path
from tests.native.workshop import PROGRAMS


@dataclass(frozen=True, kw_only=True)
class Release:
    """What a stand-in is made from, and the calls that each of its entry points gets."""

    version: str
    library: str
    source: str
    calls: tuple[int, ...]

    def library_in(self, tree: Path) -> Path:
        return tree / "vllm" / "vllm_flash_attn" / self.library


RELEASES = (
    Release(version="0.6.3", library="vllm_flash_attn_c.abi3.so", source="flash_standin_fa2.cpp", calls=(2, 4)),
    Release(version="0.26.0", library=LIBRARY, source="flash_standin_fa3.cpp", calls=(3,)),
)


def built_standin(release: Release) -> Path:
    """Return a directory with `tree`, in which the stand-in's library is, and libother.so, another kernel for it."""
    sources = [HERE / "inside" / release.source, HERE / "inside" / "flash_standin.hpp", PROGRAMS / "replacement.cpp"]
    sources += [Path(__file__), *sorted((CHECKOUT / "native" / "include").rglob("*.h"))]
    path = standin_path(f"flash-{release.version}", *(source.read_text() for source in sources))
    keep(path, partial(_build, release))
    return path


def _build(release: Release, path: Path) -> None:
    """Compile the stand-in into a tree, and the other kernel beside it."""
    library = release.library_in(path / "tree")
    library.parent.mkdir(parents=True)
    (path / "tree" / "vllm" / "__init__.py").touch()
    write_dist_info(path / "tree", "vllm", release.version)
    site = subprocess.run(
        [python_of(VLLM_063), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    torch = Path(site.stdout.strip()) / "torch"
    headers = [f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"]
    shared = ["g++", "-fPIC", "-shared", "-Wl,--build-id=sha1"]
    linked = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    source = HERE / "inside" / release.source
    subprocess.run([*shared, "-O0", "-std=c++20", *headers, source, "-o", library, *linked], check=True, timeout=900)
    include = f"-I{CHECKOUT / 'native' / 'include'}"
    other = path / "libother.so"
    subprocess.run([*shared, "-O2", include, PROGRAMS / "replacement.cpp", "-o", other], check=True, timeout=120)
