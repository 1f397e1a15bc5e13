"""What the other tests stand on: the oracle is not in doubt, and the models tell softmax scales apart."""

from __future__ import annotations

import pytest

from tests.engines.conftest import Oracle
from tests.engines.recipe import MODELS, TOKENS

pytestmark = pytest.mark.engines

LEAD = 0.01
"""A hundred times what engines are allowed to differ by."""


@pytest.mark.parametrize("name", MODELS)
def test_no_token_is_a_near_tie(oracle: Oracle, name: str) -> None:
    leads = {scale: lead for (model, scale), lead in oracle.least_leads.items() if model == name}
    assert len(leads) == 2
    assert min(leads.values()) > LEAD


@pytest.mark.parametrize("name", MODELS)
def test_every_prompt_has_a_continuation_of_its_own_at_each_scale(oracle: Oracle, name: str) -> None:
    outputs = [*oracle.outputs[name, 1.0], *oracle.outputs[name, 0.5]]
    assert {len(output.tokens) for output in outputs} == {TOKENS}
    assert len({output.tokens for output in outputs}) == len(outputs) == 2 * len(oracle.prompts[name])
    assert all(output.text.isascii() for output in outputs)
