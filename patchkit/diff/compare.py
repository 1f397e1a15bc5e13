"""What differs between two lists of lines: anchored on lines that are unique on both sides, then the fewest edits."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

_STRIDE = 64  # lines compared at once, where many are equal
_MOST_EDITS = 500  # in one block without a fixed point: time and memory grow with the square


class Block(NamedTuple):
    """A changed range: old[old_start:old_end] becomes new[new_start:new_end]."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def compare_lines(old: list[bytes], new: list[bytes]) -> list[Block]:
    """Return the changed ranges in order, never two that touch.

    As patience diff: equal ends are set aside, lines that occur once on each side and in the same order are fixed
    points, and the same is done between them. What has no fixed point is compared by Myers' algorithm ("An O(ND)
    Difference Algorithm", 1986), or is replaced as a whole when it takes more than 500 edits.
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
            changed += _fewest_edits(old, new, block)
    return _joined(sorted(changed))


def _without_equal_ends(old: list[bytes], new: list[bytes], block: Block) -> Block:
    start, end, new_start, new_end = block
    while min(end - start, new_end - new_start) >= _STRIDE:
        if old[start : start + _STRIDE] != new[new_start : new_start + _STRIDE]:
            break
        start, new_start = start + _STRIDE, new_start + _STRIDE
    while min(end - start, new_end - new_start) >= _STRIDE:
        if old[end - _STRIDE : end] != new[new_end - _STRIDE : new_end]:
            break
        end, new_end = end - _STRIDE, new_end - _STRIDE
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


def _fewest_edits(old: list[bytes], new: list[bytes], block: Block) -> list[Block]:
    """Return single-line edits from the start of the block to its end: the greedy search, kept round by round."""
    one, other = old[block.old_start : block.old_end], new[block.new_start : block.new_end]
    goal = len(one) - len(other)
    rounds: list[dict[int, int]] = []
    reach = {1: 0}
    for edits in range(min(len(one) + len(other), _MOST_EDITS) + 1):
        rounds.append(reach.copy())
        for diagonal in range(-edits, edits + 1, 2):
            at = reach[diagonal + 1] if _goes_down(reach, diagonal, edits) else reach[diagonal - 1] + 1
            while at < len(one) and 0 <= at - diagonal < len(other) and one[at] == other[at - diagonal]:
                at += 1
            reach[diagonal] = at
        if reach.get(goal, -1) >= len(one):
            return _walk_back(rounds, block)
    return [block]


def _goes_down(reach: dict[int, int], diagonal: int, edits: int) -> bool:
    """True when the furthest way onto the diagonal inserts a line, False when it removes one."""
    return diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])


def _walk_back(rounds: list[dict[int, int]], block: Block) -> list[Block]:
    diagonal = (block.old_end - block.old_start) - (block.new_end - block.new_start)
    found = []
    for edits in range(len(rounds) - 1, 0, -1):
        down = _goes_down(rounds[edits], diagonal, edits)
        diagonal += 1 if down else -1
        at = rounds[edits][diagonal]
        x, y = block.old_start + at, block.new_start + at - diagonal
        found.append(Block(x, x, y, y + 1) if down else Block(x, x + 1, y, y))
    return found


def _joined(blocks: list[Block]) -> list[Block]:
    """Join ranges that touch on both sides."""
    joined: list[Block] = []
    for block in blocks:
        if joined and joined[-1].old_end == block.old_start and joined[-1].new_end == block.new_start:
            joined[-1] = Block(joined[-1].old_start, block.old_end, joined[-1].new_start, block.new_end)
        else:
            joined.append(block)
    return joined
