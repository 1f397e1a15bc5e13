"""All cases of our own."""

from __future__ import annotations

from tests.blackbox.cases import content, names, placing, pull_requests, safety

CASES = {
    f"{module.__name__.rpartition('.')[2]}: {case.name}": case
    for module in (names, content, placing, safety, pull_requests)
    for case in module.CASES
}
