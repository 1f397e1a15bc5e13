"""Which role each kv head of a layer plays, numbered over the whole model and cut for tensor parallelism.

local: window and anchors. global: dense. routed: dense for the token blocks that a gate picks, local for the others.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .problem import AttentionError, Pattern


class Role(enum.Enum):
    """What a kv head, and the query heads that share it, attend to; the value is its letter in a text."""

    LOCAL = "l"
    GLOBAL = "g"
    ROUTED = "r"


@dataclass(frozen=True, kw_only=True, slots=True)
class Roles:
    """The roles of the kv heads `first` .. of a layer that has `total` of them; a whole layer has first 0 and all
    roles.
    """

    roles: tuple[Role, ...]
    first: int = 0
    total: int = 0

    @classmethod
    def parse(cls, text: str) -> Roles:
        """Return the roles of a whole layer from a letter per kv head: "llgr". Raises AttentionError."""
        letters = {role.value: role for role in Role}
        if not text or set(text) - set(letters):
            raise AttentionError(f"roles {text!r}: a letter per kv head, l (local), g (global) or r (routed)")
        return cls(roles=tuple(letters[letter] for letter in text), total=len(text))

    def shard(self, rank: int, size: int) -> Roles:
        """Return the slice of a tensor-parallel rank; with more ranks than kv heads, several ranks hold the same
        head.
        """
        count = len(self.roles)
        if not 0 <= rank < size:
            raise AttentionError(f"rank {rank} of {size} tensor-parallel ranks")
        if count % size and size % count:
            raise AttentionError(f"{count} kv heads cannot be cut for {size} tensor-parallel ranks")
        width = max(1, count // size)
        begin = rank * width if count >= size else rank * count // size
        return Roles(roles=self.roles[begin : begin + width], first=self.first + begin, total=self.total)

    def heads(self, role: Role) -> tuple[int, ...]:
        """Return the kv heads of a role, numbered within this slice."""
        return tuple(place for place, one in enumerate(self.roles) if one is role)

    def global_heads(self, role: Role) -> tuple[int, ...]:
        """Return the kv heads of a role, numbered over the whole layer."""
        return tuple(self.first + place for place in self.heads(role))

    def columns_of(self, part: Roles) -> tuple[int, ...]:
        """Return where the routed heads of a slice stand among those of this layer: its columns of what the gate
        says. Raises AttentionError for a slice of another layer.
        """
        columns = {head: column for column, head in enumerate(self.global_heads(Role.ROUTED))}
        foreign = sorted(set(part.global_heads(Role.ROUTED)) - set(columns))
        if foreign:
            raise AttentionError(f"kv head {foreign[0]} is routed in the slice, but not in the layer")
        return tuple(columns[head] for head in part.global_heads(Role.ROUTED))


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutingCost:
    """What roles cost and save in a layer: bytes of keys and values, and operations of the gate.

    `stored`: what the cache must keep of a sequence (a routed head keeps everything). `read`: what one decode step
    reads. `dense`: what a dense layer keeps and reads.
    """

    stored: int
    read: int
    dense: int
    gate_operations: int
    gate_bytes: int

    @property
    def saved(self) -> int:
        """Bytes that a decode step need not read."""
        return self.dense - self.read


def routing_cost(
    roles: Roles, pattern: Pattern, *, context: int, picked: int, row_bytes: int, hidden: int, gate_element: int = 2
) -> RoutingCost:
    """Return what a decode step at a context of so many tokens costs.

    `row_bytes`: key and value of one token of one kv head, (D + Dv) * bytes per element. `picked`: routed heads run
    dense. The gate is one product of the hidden state with [routed heads, hidden]; its weights are read once.
    """
    if context < 0 or picked < 0:
        raise AttentionError(f"a context of {context} tokens, {picked} routed heads picked: 0 or more of each")
    count = {role: len(roles.heads(role)) for role in Role}
    local = context if pattern.window is None else min(context, pattern.window + pattern.anchors)
    routed = count[Role.ROUTED]
    dense_routed = min(picked, routed)
    read = (count[Role.LOCAL] + routed - dense_routed) * local + (count[Role.GLOBAL] + dense_routed) * context
    stored = count[Role.LOCAL] * local + (count[Role.GLOBAL] + routed) * context
    return RoutingCost(
        stored=stored * row_bytes,
        read=read * row_bytes,
        dense=len(roles.roles) * context * row_bytes,
        gate_operations=2 * routed * hidden,
        gate_bytes=routed * hidden * gate_element,
    )
