"""Ranges that must not share a line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from patchkit.diff.overlap import Spans

RANGES = st.tuples(st.integers(0, 12), st.integers(0, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(RANGES, max_size=12))
def test_a_rival_is_found_exactly_when_two_ranges_share_a_line(ranges: list[tuple[int, int]]) -> None:
    spans = Spans()
    kept: list[tuple[int, int]] = []
    for start, end in ranges:
        rivals = [number for number, other in enumerate(kept) if start < other[1] and other[0] < end]
        rival = spans.rival(start, end)
        assert (rival in rivals) if rivals else (rival is None)
        if not rivals:
            spans.add(start, end, len(kept))
            kept.append((start, end))
