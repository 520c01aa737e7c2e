"""Robust mixing under rules that nobody waits for: one share after another, one vote a peer."""

import math

from ...protocol.context import RuleContext
from ...protocol.share import Share
from ...types import PeerId
from ...weight import coarse
from .filters import RobustFilter

__all__ = ["RobustMixing", "accepted_weight"]

# Below so many neighbors that were heard, nobody can tell which of them is far away.
_VOTES_MIN = 3

# Up to so many neighbors, each counts from the start: who was not heard yet, like the nearest who
# was. Else the first few liars that are heard, and floods are heard first, would be the majority.
_PADDED_MAX = 16

# Rounds of the topology in which neighbors are looked for.
_ROUNDS = 8

# Shares count for less with every turn: of the last 200, more or less.
_MEMORY = 1 - 1 / 200

# So many may come at once, and then so many times as many as from others in the middle.
_BURST, _TIMES = 8.0, 4.0


class RobustMixing:
    """Measures each share, and mixes as much of it as a method takes of its sender.

    A method compares neighbors, and shares come one by one: so the last distance of each sender
    is its *vote*, whatever was taken of the share. Each live peer has one, however often it
    pushes, and those that were refused vote, too: where most have moved away, the median follows.
    Before anything is measured, shares are refused of whoever sends many more than others do.
    """

    def __init__(self, method: RobustFilter) -> None:
        self._method = method
        self._votes: dict[tuple[int, PeerId], float] = {}
        """How far the last share of each peer was, by shard."""
        self._counts: dict[tuple[int, PeerId], float] = {}
        """Shares of each peer that were looked at, older ones for less."""

    def mix(self, context: RuleContext) -> None:
        """Mix what was measured, and have measured what has come.

        ``x += w_s / (w_s + w) c (x_s - x)``, where c is what the method takes, and distances are
        those of the share's shard. So much of its weight is accepted as goes with such a move.
        """
        if not context.measured:
            self._counts = {peer: _MEMORY * n for peer, n in self._counts.items() if n > 0.01}
        measuring: set[int] = set()
        for share in context.shares():
            shard, distance = share.id.shard, context.distance(share)
            if shard in measuring:
                continue  # what is measured now will have moved the model before this one's turn
            if distance is None:
                if self._is_flooding(share):
                    context.refuse(share, "its sender sends many more than others")
                    continue
                context.measure(share)
                measuring.add(shard)
            else:
                self._take(context, share, distance)

    def _take(self, context: RuleContext, share: Share, distance: float) -> None:
        key = share.id.shard, share.sender
        self._votes[key] = distance
        own, part, why = context.weight_of(share.id.shard), 0.0, "too far from the model"
        if math.isfinite(distance):
            part = self._part(context, share)
            why = "too far from the model, or of nobody to compare it with yet"
        self._counts[key] = self._counts.get(key, 0.0) + 1.0
        if part:
            context.mix(share, accepted_weight(share.weight, own, part))
        else:
            context.refuse(share, why)

    def _part(self, context: RuleContext, share: Share) -> float:
        """What the method takes of a share whose distance is among the votes."""
        shard = share.id.shard
        live = {*context.live(), share.sender}
        self._votes = {key: far for key, far in self._votes.items() if key[1] in live}
        voters = [peer for at, peer in self._votes if at == shard]
        n_neighbors = _n_neighbors(context) if self._method.is_relative else 0
        if len(voters) < min(_VOTES_MIN, n_neighbors):
            return 0.0
        distances = [self._votes[shard, peer] for peer in voters]
        place = voters.index(share.sender)
        if self._method.by_median:
            distances += [min(distances)] * (min(_PADDED_MAX, n_neighbors) - len(voters))
        return self._method.coefficients(distances, [1.0] * len(distances))[place]

    def _is_flooding(self, share: Share) -> bool:
        """Whether its sender sends many more than the one in the middle of all others."""
        shard, sender = share.id.shard, share.sender
        others = sorted(
            [n for (at, peer), n in self._counts.items() if at == shard and peer != sender]
        )
        if not others:
            return False
        middle = others[(len(others) - 1) // 2]
        return self._counts.get((shard, sender), 0.0) > _BURST + _TIMES * middle


def accepted_weight(weight: int, own: int, part: float) -> int:
    """How much of a share to accept, so that it moves the model that part as far."""
    if part >= 1 or not own:
        return weight
    # a / (a + own) = c weight / (weight + own), in integers.
    taken, whole = part.as_integer_ratio()
    return coarse(taken * weight * own // (whole * own + (whole - taken) * weight))


def _n_neighbors(context: RuleContext) -> int:
    """How many different neighbors the topology knows in a few rounds."""
    return len({peer for round in range(_ROUNDS) for peer in context.neighbors(round)})
