"""Engines by torch releases: the torch symbols that each shared object lacks, from stored facts, without a download."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from patchkit.abi.check import exported_by
from patchkit.abi.compare import missing_symbols, torch_imports
from patchkit.abi.facts import ObjectFacts, WheelFacts
from patchkit.abi.graph_proofs import GraphProof, graph_cell, proofs_of
from patchkit.abi.layout_facts import StoredTypes
from patchkit.abi.matrix_structs import EngineStruct, StructRow, engine_structs, struct_rows
from patchkit.abi.requirements import pinned_versions
from patchkit.abi.snapshot import TORCH, Facts, read_snapshot
from patchkit.abi.torch_build import TorchBuild, cuda_major, stored_torch
from patchkit.errors import UsageError
from patchkit.record import dataclass
from patchkit.specifier import pinned_version

_KERNELS = ("sgl-kernel", "sglang-kernel")


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixCell:
    """One shared object with one torch. `note` says what else is in the way, "" for nothing."""

    torch: str
    missing: tuple[str, ...]
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixRow:
    """One shared object: `undefined` counts its strong undefined symbols, `torch_symbols` those that are torch's.

    `graphs` are the runs of its entry points in CUDA graphs.
    """

    engine: str
    path: str
    undefined: int
    torch_symbols: int
    cells: tuple[MatrixCell, ...]
    graphs: tuple[GraphProof, ...] = ()

    @property
    def graph_words(self) -> str:
        """Say what came of the runs, and when: `safe 2026-11-30`; `not run` without any."""
        return " ".join(filter(None, graph_cell(self.graphs)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A shared object that could not be read, and why: of its engine nothing is known to fit."""

    engine: str
    path: str
    fault: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """Rows in the order of engines and paths; `torches` are the columns, of `structs` too.

    `graphs` are all runs in CUDA graphs, those of the rows among them.
    """

    torches: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    structs: tuple[StructRow, ...] = ()
    engine_structs: tuple[EngineStruct, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    graphs: tuple[GraphProof, ...] = ()

    def fitting(self, engine: str) -> tuple[str, ...]:
        """Return the torches with which nothing of an engine lacks a symbol."""
        if any(one.engine == engine for one in self.unreadable):
            return ()
        rows = [row for row in self.rows if row.engine == engine]
        return tuple(
            torch
            for place, torch in enumerate(self.torches)
            if rows and all(not row.cells[place].missing and not row.cells[place].note for row in rows)
        )


def build_matrix(
    wheels: Sequence[WheelFacts],
    torches: Sequence[TorchBuild],
    *,
    types: StoredTypes | None = None,
    proofs: Sequence[GraphProof] = (),
) -> Matrix:
    """Compare every shared object that needs anything of torch with every torch.

    `types` are what is stored of the engines' own structs, `proofs` the runs in CUDA graphs.
    """
    stored = types or StoredTypes({}, "")
    return Matrix(
        torches=tuple(one.wheel.version for one in torches),
        rows=tuple(row for wheel in wheels for row in _rows(wheel, torches, proofs)),
        graphs=tuple(proofs),
        structs=struct_rows([one.layouts for one in torches]),
        engine_structs=tuple(row for one in wheels for row in engine_structs(one.title, stored.of(one.title))),
        unreadable=tuple(
            Unreadable(engine=wheel.title, path=one.path, fault=one.fault)
            for wheel in wheels
            for one in wheel.objects
            if one.fault
        ),
    )


def chosen_engines(texts: Sequence[str], facts: Facts) -> tuple[WheelFacts, ...]:
    """Return the stored wheels that `vllm==0.6.3` and the like name, all engines without any; snapshot files too.

    An engine stands for the kernels that it pins, too (`sglang==0.5.1` for its sgl-kernel).
    """
    if not texts:
        return tuple(one for one in facts.wheels if one.distribution != TORCH and one.objects)
    return tuple(wheel for text in texts for wheel in _engine(text, facts))


def chosen_proofs(proofs: Sequence[GraphProof], wheels: Sequence[WheelFacts], facts: Facts) -> tuple[GraphProof, ...]:
    """Return the runs of these engines, and those of what is none of the stored engines, such as a library of ours."""
    chosen = {one.title for one in wheels}
    stored = {f"{name}=={version}" for name, version in facts.titles}
    return tuple(one for one in proofs if one.engine in chosen or one.engine not in stored)


def chosen_torches(texts: Sequence[str], facts: Facts) -> tuple[TorchBuild, ...]:
    """Return the stored torches that versions name, all without any."""
    return tuple(stored_torch(facts, text.removeprefix("torch==")) for text in (texts or facts.torches))


def stored_wheel(text: str, facts: Facts) -> WheelFacts:
    """Return the stored wheel that `NAME==VERSION` names; UsageError says which there are."""
    name = text.partition("==")[0].strip()
    version = pinned_version(text[len(name) :])
    wheel = facts.find(name, version) if version else None
    if wheel is not None:
        return wheel
    known = ", ".join(one.title for one in facts.wheels if one.distribution == name) or ", ".join(
        one.title for one in facts.wheels if one.distribution != TORCH
    )
    raise UsageError(
        f"no facts are stored about {text}",
        why=f"  stored: {known}",
        hint="`patchkit abi snapshot` writes them for an installed or unpacked one; name that file instead",
    )


def _engine(text: str, facts: Facts) -> Iterator[WheelFacts]:
    if text.endswith(".json"):
        yield read_snapshot(Path(text)).wheel
        return
    wheel = stored_wheel(text, facts)
    if any(torch_imports(one) for one in wheel.objects):
        yield wheel
    for kernel in _KERNELS:
        for version in pinned_versions(wheel, kernel):
            yield stored_wheel(f"{kernel}=={version}", facts)


def _rows(wheel: WheelFacts, torches: Sequence[TorchBuild], proofs: Sequence[GraphProof]) -> Iterator[MatrixRow]:
    siblings = exported_by(wheel)
    for one in wheel.objects:
        needed = torch_imports(one, siblings)
        if needed:
            yield MatrixRow(
                engine=wheel.title,
                path=one.path,
                undefined=sum(not symbol.weak for symbol in one.imports),
                torch_symbols=len(needed),
                cells=tuple(_cell(one, torch, siblings) for torch in torches),
                graphs=proofs_of(one, wheel, proofs),
            )


def _cell(facts: ObjectFacts, torch: TorchBuild, siblings: frozenset[str]) -> MatrixCell:
    linked, have = cuda_major(facts.needed), torch.cuda_major
    note = ""
    if linked is not None and have is None:
        note = "no CUDA"
    elif linked is not None and linked != have:
        note = f"CUDA {linked} with CUDA {have}"
    return MatrixCell(torch=torch.wheel.version, missing=missing_symbols(facts, torch, siblings), note=note)
