"""Make records of a release's types, and put them into a file of facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from patchkit.abi.kernel_parameters import sizes_by_value
from patchkit.abi.layout import StructLayout
from patchkit.abi.layout_binary import check_binary
from patchkit.abi.layout_facts import Evidence, Records, TypeRecord, read_types, record_of
from patchkit.abi.probe import compiler_version
from patchkit.abi.probe_flash import STRUCT, probe_flash
from patchkit.abi.probe_torch import probe_torch
from patchkit.counting import counted
from patchkit.errors import RefusedError
from patchkit.pattern import compile_lazily
from patchkit.record import dataclass

_VERSION = compile_lazily(r"__version__ = ['\"]([0-9][\w.+!-]*)['\"]")
# The vtable and the layouts are of the headers, which engines are compiled against; the libraries are not looked into.
_PROOF = "the headers in the wheel, as gcc lays them out; an engine that was built against them has these"


def record_torch(root: Path, *, compiler: str, cxx11_abi: bool, wheel: str = "") -> tuple[str, Records]:
    """Return the release, `torch==VERSION`, and the records of its types. `root` is the package directory."""
    version = torch_version(root)
    said = f"torch/include of {wheel or f'torch {version}'}"
    option = "" if cxx11_abi else " --string-abi old"
    evidence = Evidence(
        source=said, command=f"patchkit abi probe torch{option}, {compiler_version(compiler)}", proof=_PROOF
    )
    probed = probe_torch(root, compiler=compiler, cxx11_abi=cxx11_abi)
    return f"torch=={version}", {one.passed.name: record_of(one, evidence) for one in probed}


@dataclass(frozen=True, kw_only=True, slots=True)
class FlashSource:
    """A flash.h and what it is to prove.

    `source` says where the header is from and why it should be the release's. `library` is the release's own, whose
    code is compared with the header; None for a release that is the header's own. `variant` goes behind the name of the
    struct where a release has several.
    """

    header: Path
    source: str
    library: Path | None
    variant: str = ""


def record_flash(flash: FlashSource, torch: Path, *, compiler: str) -> TypeRecord:
    """Return the record of Flash_fwd_params as it is with the headers of a torch.

    RefusedError when the library's code does not fit the header: then it was made from another one.
    """
    probed = probe_flash(flash.header, torch, compiler=compiler)
    layout = probed.layout
    if layout is None:
        raise RefusedError(f"{flash.header} has no {STRUCT}", hint="name flash-attention's flash.h")
    proof = "the header in the source distribution, as gcc lays it out"
    if flash.library is not None:
        proof = _proof_by(flash.library, flash.header, layout)
    with_torch = f"torch {torch_version(torch)}, {compiler_version(compiler)}"
    evidence = Evidence(
        source=flash.source,
        command=f"patchkit abi probe torch --flash flash.h, stand-ins for its other includes, {with_torch}",
        proof=proof,
    )
    name = f"{STRUCT} ({flash.variant})" if flash.variant else STRUCT
    return record_of(probed, evidence, name=name)


def _proof_by(library: Path, header: Path, layout: StructLayout) -> str:
    """Say how a library's code proves a layout of a header; RefusedError when it does not."""
    found, kernels = check_binary(library, layout), sizes_by_value(library, layout.name)
    others = sorted(set(kernels) - {layout.size})
    if others or not found.fits(layout):
        odd = ", ".join(f"{counted(width, 'byte')} at offset {offset}" for offset, width in found.odd[:3])
        said = [f"it reads or writes {odd or counted(found.reach, 'byte')} and clears {counted(found.cleared, 'byte')}"]
        said += [f"its kernels get {', '.join(map(str, others))} bytes by value"] if others else []
        raise RefusedError(
            f"{library.name} was not made from {header.name}: {layout.size} bytes do not fit",
            why="\n".join(f"  {line}" for line in said),
            hint="try the header of another version",
        )
    by_value = f"{len(kernels)} kernels of its GPU code get {layout.size} bytes by value; " if kernels else ""
    touched = f"all {found.agreeing} reads and writes of {len(found.functions)} functions begin and end where fields do"
    return (
        f"{library.name}: {touched}, and {found.cleared} bytes are cleared; {by_value}names, and fields that they do "
        "not touch, are as in the header"
    )


def torch_version(root: Path) -> str:
    """Return the version that torch/version.py says, without running it, and without `+cu126`: no index says that."""
    path = root / "version.py"
    try:
        match = _VERSION.search(path.read_text("utf-8", "replace"))
    except OSError as error:
        raise RefusedError(f"no torch in {root}", why=f"  {error}", hint="name torch's package directory") from error
    if match is None:
        raise RefusedError(f"{path} says no version", hint="name torch's package directory")
    return match[1].partition("+cu")[0]


def write_records(path: Path, releases: Mapping[str, Records]) -> None:
    """Put types of releases into a file of facts, which may be there already; a type that is in it is replaced."""
    content = read_types(path).content(releases)
    staged = path.with_name(path.name + ".new")
    staged.write_bytes(content)
    staged.replace(path)
