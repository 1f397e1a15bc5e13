"""What differs between two lists of lines: anchored on lines that are unique on both sides, then line by line."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

_MOST_PAIRS = 20_000  # of equal lines: difflib looks at each of them many times


class Block(NamedTuple):
    """A changed range: old[old_start:old_end] becomes new[new_start:new_end]."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def compare_lines(old: list[bytes], new: list[bytes]) -> list[Block]:
    """Return the changed ranges in order, never two that touch.

    As patience diff: equal ends are set aside, lines that occur once on each side and in the same order are fixed
    points, and the same is done between them. What has no fixed point is compared by difflib, or is replaced as a
    whole where that would be too slow.
    """
    pending = [Block(0, len(old), 0, len(new))]
    changed: list[Block] = []
    while pending:
        block = _without_equal_ends(old, new, pending.pop())
        if block.old_start == block.old_end or block.new_start == block.new_end:
            if block.old_end > block.old_start or block.new_end > block.new_start:
                changed.append(block)
            continue
        anchors = _anchors(old, new, block)
        if anchors:
            pending += _between(block, anchors)
        else:
            changed += _line_by_line(old, new, block)
    return _joined(sorted(changed))


def _without_equal_ends(old: list[bytes], new: list[bytes], block: Block) -> Block:
    start, end, new_start, new_end = block
    while start < end and new_start < new_end and old[start] == new[new_start]:
        start += 1
        new_start += 1
    while start < end and new_start < new_end and old[end - 1] == new[new_end - 1]:
        end -= 1
        new_end -= 1
    return Block(start, end, new_start, new_end)


def _anchors(old: list[bytes], new: list[bytes], block: Block) -> list[tuple[int, int]]:
    """Return the longest rising sequence of (old, new) indices of lines that are unique on both sides."""
    once_old, once_new = (Counter(old[block.old_start : block.old_end]), Counter(new[block.new_start : block.new_end]))
    where = {new[index]: index for index in range(block.new_start, block.new_end) if once_new[new[index]] == 1}
    pairs = [
        (index, where[old[index]])
        for index in range(block.old_start, block.old_end)
        if once_old[old[index]] == 1 and old[index] in where
    ]
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for number, (_, position) in enumerate(pairs):
        length = bisect_left(tails, position)
        previous.append(ends[length - 1] if length else -1)
        tails[length : length + 1] = [position]
        ends[length : length + 1] = [number]
    chain = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chain.append(pairs[number])
        number = previous[number]
    return chain[::-1]


def _between(block: Block, anchors: list[tuple[int, int]]) -> list[Block]:
    """Return the ranges between fixed points; an anchor itself is an equal line."""
    parts = []
    old_at, new_at = block.old_start, block.new_start
    for old_index, new_index in [*anchors, (block.old_end, block.new_end)]:
        parts.append(Block(old_at, old_index, new_at, new_index))
        old_at, new_at = old_index + 1, new_index + 1
    return [part for part in parts if part.old_end > part.old_start or part.new_end > part.new_start]


def _line_by_line(old: list[bytes], new: list[bytes], block: Block) -> list[Block]:
    one, other = old[block.old_start : block.old_end], new[block.new_start : block.new_end]
    counts = Counter(other)
    if sum(counts[line] for line in one) > _MOST_PAIRS:
        return [block]
    from difflib import SequenceMatcher

    return [
        Block(block.old_start + i, block.old_start + j, block.new_start + k, block.new_start + m)
        for tag, i, j, k, m in SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
        if tag != "equal"
    ]


def _joined(blocks: list[Block]) -> list[Block]:
    """Join ranges that touch on both sides."""
    joined: list[Block] = []
    for block in blocks:
        if joined and joined[-1].old_end == block.old_start and joined[-1].new_end == block.new_start:
            joined[-1] = Block(joined[-1].old_start, block.old_end, joined[-1].new_start, block.new_end)
        else:
            joined.append(block)
    return joined
