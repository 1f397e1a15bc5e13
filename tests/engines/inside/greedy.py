"""Greedy decoding by the definition: the whole sequence through a transformers model for every token."""

from __future__ import annotations

import torch


def scale_scores(model, factor: float) -> None:
    """Make every attention layer see its scores times a factor, by scaling the queries; exact for a power of two."""
    scaled = [weight for name, weight in model.named_parameters() if ".q_proj." in name]
    assert scaled
    with torch.no_grad():
        for weight in scaled:
            weight.mul_(factor)


def decode(model, prompts: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return for prompts of one length [n, length] the tokens, their log-probabilities and the leads [n, count].

    A lead is how much likelier the token is than the second best, as a difference of logarithms: 0 is a tie.
    """
    sequence, chosen, leads = prompts, [], []
    for _ in range(count):
        with torch.no_grad():
            probabilities = torch.log_softmax(model(sequence).logits[:, -1].float(), dim=-1)
        best = probabilities.topk(2)
        sequence = torch.cat([sequence, best.indices[:, :1]], dim=1)
        chosen.append(best.values[:, 0])
        leads.append(best.values[:, 0] - best.values[:, 1])
    return sequence[:, prompts.shape[1] :], torch.stack(chosen, dim=1), torch.stack(leads, dim=1)
