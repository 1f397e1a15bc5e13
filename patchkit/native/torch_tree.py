"""The torch that an engine will run with: where its headers are, which release it is, which C++ ABI it has.

Read from files. torch is never imported: it would be the wrong one, and it takes seconds.
"""

from __future__ import annotations

from pathlib import Path

from patchkit.environment import interpreter_environment
from patchkit.errors import TargetError
from patchkit.native.library import has_new_strings, identity_of
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.target import TargetTree

_VERSION = compile_lazily(r"^__version__ = '([0-9A-Za-z.+_-]{1,60})'$", 8)  # re.MULTILINE
_LARGEST = 1 << 16
_NEEDED = ("lib/libc10.so", "include/ATen/core/Tensor.h", "version.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchTree:
    """An installed torch: `directory` is its package, `c10` the identity of its libc10.so."""

    directory: Path
    version: str
    c10: str
    cxx11: bool

    @property
    def libraries(self) -> Path:
        """Where libc10.so and libtorch_cpu.so are."""
        return self.directory / "lib"

    @property
    def headers(self) -> Path:
        """What ATen/ and c10/ are below."""
        return self.directory / "include"


def find_torch(tree: TargetTree) -> TorchTree:
    """Return the torch beside an engine, else that of its interpreter; TargetError says where was looked."""
    places = [tree.root]
    if tree.python is not None:
        places += interpreter_environment(tree.python).sites
    for place in places:
        if (place / "torch" / "version.py").is_file():
            return read_torch(place / "torch")
    raise TargetError(
        "no torch beside the engine",
        why="\n".join(f"  looked in {place}" for place in dict.fromkeys(places)),
        hint=f"install {_pinned(tree)} there; --python EXE names the interpreter that it runs with",
    )


def _pinned(tree: TargetTree) -> str:
    """Name the torch that the engine pins, by its version where the engine's METADATA has one."""
    from patchkit.abi.facts import WheelFacts
    from patchkit.abi.inspect_wheel import read_metadata
    from patchkit.abi.requirements import pinned_torch

    headers = read_metadata(tree.root / tree.distribution / "METADATA") if tree.distribution else {}
    wheel = WheelFacts(
        distribution=tree.engine,
        version=tree.version,
        file="",
        sha256="",
        tags=(),
        requires_python="",
        requires=tuple(headers.get("requires-dist", ())),
        extras=tuple(headers.get("provides-extra", ())),
        objects=(),
    )
    version = pinned_torch(wheel)
    return f"torch {version}, which the engine pins," if version else "the torch that the engine pins"


def kernel_lookup(tree: TargetTree) -> tuple[bool, str]:
    """Tell whether the engine's torch can hand out a kernel that is registered, and why not in words."""
    try:
        torch = find_torch(tree)
    except TargetError:
        return False, "no torch is beside the engine, to see whether it has torch.library.get_kernel"
    with (torch.directory / "library.py").open("rb") as file:
        has_it = b"\ndef get_kernel(" in file.read()
    return has_it, f"torch {torch.version} has {'' if has_it else 'no '}torch.library.get_kernel"


def read_torch(directory: Path) -> TorchTree:
    """Read what a torch is; TargetError when a part that stage 2 needs is missing."""
    missing = [name for name in _NEEDED if not (directory / name).is_file()]
    if missing:
        raise TargetError(
            f"{directory} is not whole", why=f"  missing: {', '.join(missing)}", hint="install torch again"
        )
    with (directory / "version.py").open("rb") as file:
        match = _VERSION.search(file.read(_LARGEST).decode("utf-8", "replace"))
    if match is None:
        raise TargetError(f"{directory / 'version.py'} says no version", hint="install torch again")
    library = directory / "lib" / "libc10.so"
    return TorchTree(directory=directory, version=match[1], c10=identity_of(library), cxx11=has_new_strings(library))
