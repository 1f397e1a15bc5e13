"""Which kv heads need a global role: those that, on sample sequences, look at what a local head does not see.

For every query the share of the dense softmax that lies outside window and anchors is summed. A retrieval head does so
for few queries, but then wholly: a head is judged by its most outward rows, not by the mean over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .autocast import as_written
from .problem import AttentionError, Inputs, Pattern
from .reference import sequence_keys
from .roles import Role, Roles
from .validate import check_values, checked

THRESHOLD = 0.25
_BLOCK = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadScore:
    """What a kv head was seen to do: `outside` of its most outward rows, the mean over all sequences; `mean` of all
    rows.

    Both are shares of the softmax, 0 to 1, of the query head of the group that looks farthest.
    """

    head: int
    outside: float
    mean: float


def score_heads(samples: Iterable[Inputs], pattern: Pattern, *, rows: int = 1) -> tuple[HeadScore, ...]:
    """Return a score per kv head of a layer from its queries and keys on sample sequences; `rows` of each are judged.

    Sequences should be several windows long: in shorter ones nothing lies outside. Raises AttentionError where no row
    of any sample has a key outside, for samples that attention would refuse, and for those that hold NaN.
    """
    if rows < 1:
        raise AttentionError(f"{rows} rows of a sample to judge by: 1 or more")
    shares = [share for inputs in samples for share in _outside_shares(inputs, pattern)]
    if not shares:
        raise AttentionError("no sample has a key outside window and anchors; calibrate on longer sequences")
    if len({share.shape[0] for share in shares}) > 1:
        raise AttentionError("the samples differ in kv heads; score one layer at a time")
    outward = torch.stack([share.topk(min(rows, share.shape[1]), dim=1).values.mean(1) for share in shares]).mean(0)
    everywhere = torch.cat(shares, dim=1).mean(1)
    if unclear := outward.isnan().nonzero()[:, 0].tolist():
        raise AttentionError(f"kv heads {', '.join(map(str, unclear))} see NaN in the queries or keys of the samples")
    return tuple(
        HeadScore(head=head, outside=outside, mean=mean)
        for head, (outside, mean) in enumerate(zip(outward.tolist(), everywhere.tolist(), strict=True))
    )


def roles_from(scores: tuple[HeadScore, ...], *, threshold: float = THRESHOLD) -> Roles:
    """Return global for the heads whose outward rows look outside by more than the threshold, local for the others.

    Raises AttentionError for a threshold that is no share.
    """
    if not 0 <= threshold <= 1:
        raise AttentionError(f"a threshold of {threshold}: a share of the softmax, 0 to 1")
    chosen = tuple(Role.GLOBAL if score.outside > threshold else Role.LOCAL for score in scores)
    return Roles(roles=chosen, total=len(chosen))


def _outside_shares(inputs: Inputs, pattern: Pattern) -> list[Tensor]:
    """Return, per sequence, [Hkv, rows]: the share outside, for rows that have keys outside."""
    inputs = checked(inputs, pattern)
    check_values(inputs)
    starts = inputs.query_starts.tolist()
    found = []
    for sequence in range(inputs.batch):
        key, _ = sequence_keys(inputs, sequence)
        query = inputs.query[starts[sequence] : starts[sequence + 1]]
        first = key.shape[0] - query.shape[0]
        blocks = range(0, query.shape[0], _BLOCK)
        shares = [_block_share(query[begin : begin + _BLOCK], key, first + begin, pattern) for begin in blocks]
        if shares and (whole := torch.cat(shares, dim=1)).shape[1]:
            found.append(whole)
    return found


def _block_share(query: Tensor, key: Tensor, position: int, pattern: Pattern) -> Tensor:
    positions = torch.arange(position, position + query.shape[0], device=key.device)
    places = torch.arange(key.shape[0], device=key.device)
    dense = Pattern(window=None, causal=pattern.causal).sees(positions, places)
    outside = dense & ~pattern.sees(positions, places)
    rows = outside.any(1)
    grouped = query.float().unflatten(1, (key.shape[1], -1))
    with as_written(key.device.type):
        scores = torch.einsum("qhgd,nhd->hgqn", grouped, key.float()) * pattern.scale_for(query.shape[-1])
    if pattern.softcap:
        scores = pattern.softcap * torch.tanh(scores / pattern.softcap)
    weights = torch.softmax(scores.masked_fill(~dense, -torch.inf)[:, :, rows], dim=-1)
    return (weights * outside[rows]).sum(-1).amax(1)
