"""Find a type in the stored facts: by the name of a release and its own, with or without its namespace."""

from __future__ import annotations

from patchkit.abi.layout_facts import Records, StoredTypes, TypeRecord
from patchkit.engine import normalise_name
from patchkit.errors import UsageError


def find_release(stored: StoredTypes, wanted: str) -> tuple[str, Records]:
    """Return the stored release that `NAME==VERSION` means. UsageError names those that there are."""
    name, equals, version = (part.strip() for part in wanted.partition("=="))
    title = f"{normalise_name(name)}=={version}"
    if equals and title in stored.releases:
        return title, stored.of(title)
    same = [one for one in stored.releases if one.partition("==")[0] == normalise_name(name)]
    raise UsageError(
        f"no types are stored of {wanted}",
        why=f"stored are {', '.join(sorted(same or stored.releases, key=_order))}",
        hint="write NAME==VERSION; `patchkit abi probe` reads those of a torch that is here",
    )


def _order(title: str) -> tuple[str, list[int]]:
    name, _, version = title.partition("==")
    return name, [int(part) for part in version.partition("+")[0].split(".") if part.isdecimal()]


def find_types(release: str, records: Records, wanted: str) -> tuple[TypeRecord, ...]:
    """Return the types of that name, one for each variant that the release ships. UsageError names similar ones."""
    found = tuple(record for name, record in records.items() if _means(wanted, name))
    if found:
        return found
    import difflib

    near = difflib.get_close_matches(wanted, [*records, *map(_last, records)], n=3, cutoff=0.5)
    raise UsageError(
        f"{release}: no type {wanted} is stored",
        why=f"similar ones: {', '.join(near)}" if near else "and none with a name like it",
        hint=f"`patchkit abi layout --of {release}` lists them",
    )


def _means(wanted: str, name: str) -> bool:
    plain = name.partition(" (")[0]
    return _spelled(wanted) in (_spelled(name), _spelled(plain), _spelled(_last(plain)))


def _last(name: str) -> str:
    """Return a name without its namespaces; those of its template's arguments stay."""
    head, bracket, tail = name.partition("<")
    return head.rpartition("::")[2] + bracket + tail


def _spelled(name: str) -> str:
    return name.replace(" ", "").replace("int64_t", "long")
