"""Trees, diffs, series and stacks made in memory: what strip, stack, plan and compose are tested with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from patchkit.compose import Composition, put_layers, take_layers, take_patch
from patchkit.config.dotconfig import Assignment, kind_of
from patchkit.decision import Decision
from patchkit.diff.parse import parse_patch
from patchkit.diff.produce import produce_diff
from patchkit.lock import Lock, LockedArtifact, LockedFile
from patchkit.plan import Plan, Situation, make_plan
from patchkit.receipt import Origin, Receipt
from patchkit.series import PatchEntry, Series
from patchkit.stack import WantedLayer
from patchkit.target import Layout, TargetTree
from patchkit.trailers import parse_trailers
from patchkit.tree import Entries, Kind, TreeEntry
from patchkit.wanted import Terms, TreeNames, ad_hoc_layer, series_layer

Files = Mapping[str, "str | bytes | TreeEntry"]


def file(content: str | bytes, mode: int = 0o644) -> TreeEntry:
    return TreeEntry(kind=Kind.FILE, mode=mode, content=content.encode() if isinstance(content, str) else content)


def link(target: str) -> TreeEntry:
    return TreeEntry(kind=Kind.SYMLINK, mode=0o777, content=target.encode())


def entries_of(files: Files) -> dict[PurePosixPath, TreeEntry]:
    return {PurePosixPath(path): one if isinstance(one, TreeEntry) else file(one) for path, one in files.items()}


def diff(old: Files, new: Files) -> bytes:
    """Return the diff of two sets of files, as `patchkit diff` writes it."""
    return produce_diff(entries_of(old), entries_of(new))


def lines(*numbers: int, name: str = "line") -> str:
    """Return `line 1` to `line n`, each on its line; with two numbers from the first to the last."""
    first, last = (1, numbers[0]) if len(numbers) == 1 else numbers
    return "".join(f"{name} {number}\n" for number in range(first, last + 1))


class DictTree(Mapping[PurePosixPath, TreeEntry]):
    """Files in memory as a tree: a directory is there when something is in it, and no link is passed through."""

    def __init__(self, files: Mapping[PurePosixPath, TreeEntry]) -> None:
        self.files = dict(files)

    def __getitem__(self, path: PurePosixPath) -> TreeEntry:
        if path in self.files:
            return self.files[path]
        if any(path in other.parents for other in self.files):
            return TreeEntry(kind=Kind.DIRECTORY, mode=0o755, content=b"")
        raise KeyError(path)

    def __iter__(self) -> Iterator[PurePosixPath]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def target(engine: str = "tree", version: str = "", layout: Layout | None = None, package: str = "") -> TargetTree:
    layout = layout or (Layout.PLAIN if engine == "tree" else Layout.WHEEL)
    below = package or {"tree": ".", "sglang": "python/sglang" if layout is Layout.SOURCE else "sglang"}.get(
        engine, engine
    )
    return TargetTree(
        engine=engine,
        version=version,
        root=Path("/somewhere"),
        package=PurePosixPath(below),
        layout=layout,
        distribution="" if layout in (Layout.PLAIN, Layout.SOURCE) else f"{engine}-{version}.dist-info",
        python=None,
        python_version="",
        evidence=(),
    )


def settings(**values: str) -> dict[str, Assignment]:
    return {
        symbol: Assignment(symbol=symbol, value=value, kind=kind_of(value), origin="--set")
        for symbol, value in values.items()
    }


class World:
    """A tree in memory with its stack: every plan that is not refused is carried out, as a transaction would."""

    def __init__(self, files: Files, tree: TargetTree | None = None) -> None:
        self.tree = tree or target()
        self.pristine: Entries = DictTree(entries_of(files))
        self.now: Entries = self.pristine
        self.receipt: Receipt | None = None
        self.stored: dict[str, bytes] = {}

    @property
    def situation(self) -> Situation:
        return Situation(tree=self.tree, entries=self.now, receipt=self.receipt, pristine=self.pristine)

    @property
    def contents(self) -> dict[str, str]:
        return {str(path): entry.content.decode("utf-8", "surrogateescape") for path, entry in self.now.items()}

    @property
    def numbers(self) -> list[int]:
        return [layer.number for layer in self.receipt.layers] if self.receipt else []

    def ad_hoc(self, raw: bytes, name: str = "one.diff", **terms: object) -> WantedLayer:
        names = TreeNames(self.now, self.pristine)
        return ad_hoc_layer(raw, Path(name), self.tree, Terms(**terms), names)  # type: ignore[arg-type]

    def series(
        self, patches: Mapping[str, bytes], *, lock: Lock | None = None, name: str = "own", **terms: object
    ) -> WantedLayer:
        series = make_series(patches, self.tree, lock=lock)
        names = TreeNames(self.now, self.pristine)
        terms = {"unlocked": lock is None, **terms}
        return series_layer(series, Origin.USER, name, self.situation, Terms(**terms), names)  # type: ignore[arg-type]

    def put(self, *layers: WantedLayer) -> Plan:
        return self._carry_out(put_layers(self.situation, layers, self.stored.__getitem__))

    def take(self, *numbers: int) -> Plan:
        return self._carry_out(take_layers(self.situation, numbers, self.stored.__getitem__))

    def take_patch(self, number: int, name: str) -> Plan:
        return self._carry_out(take_patch(self.situation, number, name, self.stored.__getitem__))

    def _carry_out(self, composition: Composition) -> Plan:
        plan = make_plan(self.situation, composition.layers, kept=composition.kept)
        if plan.refused:
            return plan
        now = dict(self.now.items())
        for edit in plan.edits:
            if edit.after is None or edit.content is None:
                del now[edit.path]
            else:
                now[edit.path] = TreeEntry(kind=edit.after.kind, mode=edit.after.mode, content=edit.content)
        self.now = DictTree(now)
        self.stored.update(plan.patches)
        self.receipt = _receipt(plan) if plan.layers else None
        return plan


def _receipt(plan: Plan) -> Receipt:
    return Receipt(
        engine=plan.tree.engine,
        version=plan.tree.version,
        distribution=plan.tree.distribution,
        record_sha256=plan.record_sha256,
        layers=tuple(replace(layer, applied_at=layer.applied_at or "now") for layer in plan.layers),
        configuration=plan.configuration,
        files=plan.files,
        directories=plan.directories,
        plan_sha256=plan.sha256,
        tool_version="0",
    )


def make_series(patches: Mapping[str, bytes], tree: TargetTree, *, lock: Lock | None = None) -> Series:
    entries = []
    for name, raw in patches.items():
        patch = parse_patch(raw, source=name)
        trailers = parse_trailers(patch.preamble, source=name)
        entries.append(PatchEntry(name=name, strip=1, trailers=trailers, patch=patch, raw=raw))
    return Series(
        engine=tree.engine, version=tree.version, directory=Path("/series"), entries=tuple(entries), lock=lock
    )


def make_lock(patches: Mapping[str, bytes], pristine: Files, patched: Files, version: str = "0.6.3") -> Lock:
    """Return the lock of a series that takes the pristine files to the patched ones."""
    before, after = entries_of(pristine), entries_of(patched)
    touched = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    files = tuple(
        LockedFile(path=str(path), pristine=_digest(before.get(path)), patched=_digest(after.get(path)))
        for path in touched
    )
    artifact = LockedArtifact(file="engine.whl", sha256="0" * 64, version=version, files=files)
    names = tuple((name, hashlib.sha256(raw).hexdigest()) for name, raw in patches.items())
    return Lock(artifacts=(artifact,), patches=names)


def _digest(entry: TreeEntry | None) -> str | None:
    return None if entry is None else hashlib.sha256(entry.content).hexdigest()


def outcomes(plan: Plan) -> dict[str, str]:
    return {decision.patch: decision.outcome.value for decision in plan.decisions}


def verdicts(decision: Decision) -> list[str]:
    return [placement.verdict.value for file in decision.files for placement in file.placements]


def header(subject: str, **trailers: str) -> bytes:
    """Return a patch's header with trailers; `_` in a trailer's name stands for `-`."""
    tail = "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in trailers.items())
    return f"From: A <a@example.invalid>\nSubject: [PATCH] {subject}\n\nWhy it is needed.\n\n{tail}---\n".encode()
