"""Robust mixing under asynchronous rules: one share after another, one vote per peer."""

import math

from ...protocol.context import RuleContext
from ...protocol.share import Share
from ...types import PeerId
from ...weight import coarse
from .filters import RobustFilter, parse_robust

__all__ = ["RobustMixing", "accepted_weight"]

# With fewer votes it is impossible to tell which neighbor is far away.
_VOTES_MIN = 3

# Up to this number, all neighbors count from the start: one without a vote counts like the nearest
# vote. Otherwise the first few Byzantine peers, and floods arrive first, would be the majority.
_PADDED_MAX = 16

# Rounds of the topology that are searched for neighbors.
_ROUNDS = 8

# Counts decay with every turn, over about the last 200.
_MEMORY = 1 - 1 / 200

# Shares that a peer may send at once, and the multiple of the others' median on top of that.
_BURST, _TIMES = 8.0, 4.0


class RobustMixing:
    """Measures each share, and mixes the part of it that a filter allows; all of each without one.

    A filter compares neighbors, but shares arrive one by one: so the last distance of each live
    sender is its *vote*, however often it pushes, and whatever part of the share was taken. Shares
    of a peer that sends many more than others are refused before they are measured.
    """

    def __init__(self, spec: str) -> None:
        self._filter = parse_robust(spec)
        # For each shard and peer: distance of the last share, and a decaying count of shares.
        self._votes: dict[tuple[int, PeerId], float] = {}
        self._counts: dict[tuple[int, PeerId], float] = {}

    def mix(self, context: RuleContext) -> None:
        """Mix the measured shares, and request measurements of new ones.

        ``x += w_s / (w_s + w) c (x_s - x)``, where c is the part that the filter allows.
        """
        if self._filter is None:
            for share in context.shares():
                context.mix(share)
            return
        if not context.measured:
            self._counts = {peer: _MEMORY * n for peer, n in self._counts.items() if n > 0.01}
        measuring: set[int] = set()
        for share in context.shares():
            shard, distance = share.id.shard, context.distance(share)
            if shard in measuring:
                continue  # the share measured now will move the model before this one's turn
            if distance is None:
                if self._is_flooding(share):
                    context.refuse(share, "its sender sends many more than others")
                    continue
                context.measure(share)
                measuring.add(shard)
            else:
                self._take(context, self._filter, share, distance)

    def _take(
        self, context: RuleContext, method: RobustFilter, share: Share, distance: float
    ) -> None:
        key = share.id.shard, share.sender
        # Refused senders also vote: if most have moved away, the median follows.
        self._votes[key] = distance
        own, part, why = context.weight_of(share.id.shard), 0.0, "too far from the model"
        if math.isfinite(distance):
            part = self._part(context, method, share)
            why = "too far from the model, or no other peer to compare it with yet"
        self._counts[key] = self._counts.get(key, 0.0) + 1.0
        if part:
            context.mix(share, accepted_weight(share.weight, own, part))
        else:
            context.refuse(share, why)

    def _part(self, context: RuleContext, method: RobustFilter, share: Share) -> float:
        """Return the part that the filter allows of a share whose distance is among the votes."""
        shard = share.id.shard
        live = {*context.table.takers(), share.sender}
        self._votes = {key: far for key, far in self._votes.items() if key[1] in live}
        voters = [peer for at, peer in self._votes if at == shard]
        rounds = range(_ROUNDS if method.is_relative else 0)
        n_neighbors = len({peer for round in rounds for peer in context.neighbors(round)})
        if len(voters) < min(_VOTES_MIN, n_neighbors):
            return 0.0
        distances = [self._votes[shard, peer] for peer in voters]
        place = voters.index(share.sender)
        if method.by_median:
            distances += [min(distances)] * (min(_PADDED_MAX, n_neighbors) - len(voters))
        return method.coefficients(distances, [1.0] * len(distances))[place]

    def _is_flooding(self, share: Share) -> bool:
        shard, sender = share.id.shard, share.sender
        others = sorted(
            [n for (at, peer), n in self._counts.items() if at == shard and peer != sender]
        )
        if not others:
            return False
        middle = others[(len(others) - 1) // 2]
        return self._counts.get((shard, sender), 0.0) > _BURST + _TIMES * middle


def accepted_weight(weight: int, own: int, part: float) -> int:
    """Return the weight to accept of a share, so that it moves the model by that part."""
    if part >= 1 or not own:
        return weight
    # a / (a + own) = c weight / (weight + own), in integers.
    taken, whole = part.as_integer_ratio()
    return coarse(taken * weight * own // (whole * own + (whole - taken) * weight))
