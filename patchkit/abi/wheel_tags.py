"""Whether a wheel's metadata tells the truth about its shared objects: interpreter, stable ABI, platform, torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from patchkit.abi.compare import torch_imports, version_floors
from patchkit.abi.facts import ObjectFacts, WheelFacts
from patchkit.abi.requirements import requires
from patchkit.abi.snapshot import TORCH
from patchkit.abi.system import version_key
from patchkit.abi.verdicts import Finding
from patchkit.pattern import compile_lazily

_MODULE = compile_lazily(r"\.cpython-3([0-9]+)t?-")
_GLIBC_TAG = compile_lazily(r"manylinux_([0-9]+)_([0-9]+)_")
_OLD_TAGS = {"manylinux1_": "2.5", "manylinux2010_": "2.12", "manylinux2014_": "2.17"}
# The highest GLIBCXX that a system with a glibc has, by the policies of manylinux (PEP 600; auditwheel's table).
_GLIBCXX = (
    *(("2.5", "3.4.8"), ("2.12", "3.4.13"), ("2.17", "3.4.19"), ("2.24", "3.4.22"), ("2.27", "3.4.24")),
    *(("2.28", "3.4.25"), ("2.31", "3.4.28"), ("2.34", "3.4.29"), ("2.35", "3.4.30"), ("2.39", "3.4.33")),
)


def audit_tags(wheel: WheelFacts, python_version: str) -> tuple[Finding, ...]:
    """Compare the tags of WHEEL and of the file's name with the files; `python_version` is "" when it is not known."""
    return (*_modules(wheel, python_version), *_platform(wheel), *_torch(wheel))


def tagged_glibc(tags: Iterable[str]) -> str:
    """Return the lowest glibc that platform tags promise, "" when they promise none."""
    found = []
    for tag in tags:
        found += [f"{match[1]}.{match[2]}" for match in _GLIBC_TAG.finditer(tag)]
        found += [version for name, version in _OLD_TAGS.items() if name in tag]
    return min(found, key=version_key, default="")


def _modules(wheel: WheelFacts, python_version: str) -> Iterator[Finding]:
    """Find modules that some interpreters of the tags cannot load. A module may have a file for each of several."""
    modules: dict[str, list[str]] = {}
    for facts in wheel.objects:
        if match := _MODULE.search(facts.path):
            modules.setdefault(facts.path[: match.start()], []).append(f"3.{match[1]}")
    for module, own in sorted(modules.items()):
        interpreters = {f"cp3{one[2:]}-cp3{one[2:]}" for one in own}
        if wheel.tags and all(tag.startswith(tuple(interpreters)) for tag in wheel.tags):
            continue
        versions = ", ".join(sorted(own, key=version_key))
        words = (
            f"{module} loads in CPython {versions} only, and the wheel is tagged {', '.join(wheel.tags) or 'nothing'}"
        )
        lost = bool(python_version) and python_version not in own
        here = f"; this is Python {python_version}" if lost else ""
        yield Finding(kind="python tag", words=words + here, broken=lost)


def _platform(wheel: WheelFacts) -> Iterator[Finding]:
    promised = tagged_glibc((*wheel.tags, wheel.file))
    if not promised:
        return
    limit = max(
        (row for row in _GLIBCXX if version_key(row[0]) <= version_key(promised)), key=lambda row: version_key(row[0])
    )
    for facts in wheel.objects:
        needs = [f"GLIBC_{one}" for one in [version_floors(facts).get("GLIBC", "")] if _above(one, promised)]
        needs += [f"GLIBCXX_{one}" for one in [version_floors(facts).get("GLIBCXX", "")] if _above(one, limit[1])]
        if needs:
            words = f"{facts.path} needs {' and '.join(needs)}, and the wheel is tagged for glibc {promised}"
            yield Finding(kind="platform tag", words=f"{words}{_real_tag(facts)}", broken=False)


def _torch(wheel: WheelFacts) -> Iterator[Finding]:
    """Find a wheel that needs a torch and lets pip choose any."""
    binaries = [facts.name for facts in wheel.objects if torch_imports(facts)]
    if binaries and not requires(wheel, TORCH):
        words = f"{wheel.title} requires no torch, and {binaries[0]} needs one: pip may leave any beside it"
        yield Finding(kind="requirement", words=words, broken=False)


def _real_tag(facts: ObjectFacts) -> str:
    """Say which manylinux tag would be true."""
    floors = version_floors(facts)
    for glibc, glibcxx in _GLIBCXX:
        if not _above(floors.get("GLIBC", ""), glibc) and not _above(floors.get("GLIBCXX", ""), glibcxx):
            return f": it is a manylinux_{glibc.replace('.', '_')}"
    return ""


def _above(version: str, limit: str) -> bool:
    return bool(version) and version_key(version) > version_key(limit)
