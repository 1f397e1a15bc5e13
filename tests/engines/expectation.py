"""What it means that an engine agrees with the oracle, and that a tree is what was released."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.blackbox.command import difference, snapshot
from tests.engines.driver import Engine, Output
from tests.engines.recipe import tree_path

LOGPROB = 1e-4
"""How far two float32 implementations of these models may be apart; ten times what was seen."""


def assert_same(ours: Sequence[Output], theirs: Sequence[Output], *, logprob: float = LOGPROB) -> None:
    """Compare tokens and text exactly, log-probabilities within a bound."""
    assert [output.tokens for output in ours] == [output.tokens for output in theirs]
    assert [output.text for output in ours] == [output.text for output in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=logprob)


def assert_as_released(engine: Engine) -> None:
    """Compare every byte, mode and name of the tree with the cache's."""
    released = snapshot(tree_path(engine.recipe))
    assert difference(snapshot(engine.tree), released) == []
