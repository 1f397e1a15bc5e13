"""A torch to check against: a released one from the stored facts, or one that is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from patchkit.abi.facts import WheelFacts
from patchkit.abi.layout_facts import Records
from patchkit.abi.mangling import StringAbi
from patchkit.abi.snapshot import TORCH, Facts
from patchkit.errors import UsageError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass
from patchkit.version import read_version

_CHECK_OLD = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
_CHECK_NEW = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_CUDA_LIBRARY = compile_lazily(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink)\.so\.([0-9]{1,4})(?![0-9])")


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchBuild:
    """`exports` tells whether one of its libraries exports a symbol; `origin` says where that is known from.

    `layouts` are the records of types by name, nothing where none are known.
    """

    wheel: WheelFacts
    origin: str
    exports: Callable[[str], bool]
    layouts: Records

    @property
    def title(self) -> str:
        """As pip writes it: `torch==2.8.0`."""
        return self.wheel.title

    @property
    def string_abi(self) -> StringAbi:
        """Which std::string its interface has."""
        if self.exports(_CHECK_NEW):
            return StringAbi.NEW
        return StringAbi.OLD if self.exports(_CHECK_OLD) else StringAbi.NONE

    @property
    def cuda_major(self) -> int | None:
        """The major version of CUDA that it is linked with, None for a CPU build."""
        return cuda_major(name for one in self.wheel.objects for name in one.needed)


def stored_torch(facts: Facts, version: str) -> TorchBuild:
    """Return a stored release; UsageError names those that there are."""
    wheel = facts.find(TORCH, version)
    if wheel is None:
        raise UsageError(
            f"no facts are stored about torch {version}",
            why="  stored: " + ", ".join(facts.torches),
            hint=f"name one of these{_nearest(version, facts.torches)}, or an installed torch with --python EXE",
        )
    table = facts.symbols
    return TorchBuild(
        wheel=wheel,
        origin="stored facts",
        exports=lambda name: table.has(name, version),
        layouts=facts.layouts(wheel.title),
    )


def _nearest(version: str, stored: Sequence[str]) -> str:
    """Say which stored release is nearest: of the same minor release, else the one before; "" when it is no version."""
    from packaging.version import Version

    wanted = read_version(version)
    if wanted is None:
        return ""
    known = sorted((Version(one), one) for one in stored if "+" not in one)
    alike = [pair for pair in known if pair[0].release[:2] == wanted.release[:2]]
    before = [pair for pair in alike or known if pair[0] <= wanted]
    nearest = before[-1] if before else (alike or known)[0]
    return f" ({nearest[1]} is nearest)"


def installed_torch(root: Path, dist_info: str, facts: Facts) -> TorchBuild:
    """Read the torch in a site directory; layouts come from the stored facts of that release, where there are any."""
    from patchkit.abi.elf import read_exports
    from patchkit.abi.inspect_wheel import inspect_torch

    wheel = inspect_torch(root, dist_info)
    names = {name for one in wheel.objects for name in read_exports(root / one.path, one.path)}
    return TorchBuild(
        wheel=wheel,
        origin=f"installed in {root}",
        exports=lambda name: name.encode("utf-8", "surrogateescape") in names,
        layouts=facts.layouts(wheel.title),
    )


def cuda_major(needed: Iterable[str]) -> int | None:
    """Return the CUDA major that names of needed libraries tell, None when none of them is CUDA's."""
    for name in needed:
        if match := _CUDA_LIBRARY.match(name):
            return int(match[1])
    return None
