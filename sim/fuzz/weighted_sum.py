"""The weighted sum of all models, which exact mode conserves (PROTOCOL: I5)."""

from collections.abc import Sequence

import numpy as np

from ...gossip.effects.ledger import Account, Entry, Kind
from ...gossip.types import Incarnation, PeerId, SnapshotId
from ...gossip.weight import ONE
from .vector import Values, Vector
from .violation import Violation

__all__ = ["Life", "Push", "WeightedSum"]


Life = tuple[PeerId, Incarnation]

Push = tuple[Life, Life, int, int]
"""Sender, receiver, number, shard."""


_ROUNDING = 1e-9


class WeightedSum:
    """Tracks the values behind all weight, float64, each as long as its shard."""

    def __init__(self) -> None:
        self._lives: dict[Life, tuple[Vector, Sequence[Account]]] = {}
        # For each shard: all that was founded, minus all that died with a peer or was destroyed.
        self._expected: dict[int, Values] = {}
        self._scale: dict[int, float] = {}
        self._pushed: dict[Push, Values] = {}
        self._left: dict[Push, int] = {}
        self._snapshots: dict[Push, SnapshotId] = {}
        """Snapshots from which the values of open escrows can still be mixed back."""
        self._stale: set[int] = set()

    def opened(self, life: Life, vector: Vector, ledgers: Sequence[Account]) -> None:
        """Take an incarnation that began, with nothing."""
        self._lives[life] = vector, ledgers

    def died(self, life: Life) -> None:
        """Drop what an incarnation held. Its pushes in flight may still be accepted."""
        del self._lives[life]
        # It may have died in the middle of an effect, with the sum off.
        for shard in self._expected:
            self._expected[shard] = self._found(shard)

    def pushed(self, push: Push, snapshot: SnapshotId, values: Values) -> None:
        """Record the values that go with an escrow."""
        self._pushed[push] = values
        self._snapshots[push] = snapshot

    def released(self, life: Life, snapshot: SnapshotId) -> None:
        """Take a released snapshot: stranded weight comes back without its values now."""
        ledgers = self._lives[life][1]
        for push in [p for p, of in self._snapshots.items() if p[0] == life and of == snapshot]:
            escrow = ledgers[push[3]].outstanding.get(push[1])
            if escrow is not None and escrow.seq == push[2] and escrow.stranded:
                del self._snapshots[push]

    def entry(self, life: Life, entry: Entry) -> None:
        """Follow one line of an incarnation's ledger."""
        shard, other = entry.shard, (entry.peer, entry.incarnation)
        mine, theirs = (life, other, entry.seq, shard), (other, life, entry.seq, shard)
        self._stale.add(shard)
        match entry.kind:
            case Kind.FOUNDED:
                self._add(shard, entry.weight, self._x(life, shard))
                self._scale[shard] = self._scale.get(shard, 0.0) + entry.weight / ONE
            case Kind.BURNED:
                self._add(shard, -entry.weight, self._x(life, shard))
            case Kind.PUSHED:
                self._left[mine] = entry.weight
            case Kind.ACCEPTED:
                if entry.weight:
                    self._left[theirs] -= entry.weight
            case Kind.SETTLED:
                back, values = self._left.pop(mine), self._pushed.pop(mine, None)
                if self._snapshots.pop(mine, None) is None and back and values is not None:
                    self._add(shard, back, self._x(life, shard) - values)

    def check(self) -> None:
        """Raise a `Violation` if the sum is not what it must be."""
        for shard in self._stale:
            found, expected = self._found(shard), self._expected[shard]
            off = np.abs(found - expected).max()
            if not off <= _ROUNDING * self._scale[shard]:
                raise Violation("I5", f"the weighted sum of shard {shard} is off by {off}")
        self._stale.clear()

    def _add(self, shard: int, weight: int, values: Values) -> None:
        before = self._expected.get(shard, np.zeros_like(values))
        self._expected[shard] = before + weight / ONE * values

    def _found(self, shard: int) -> Values:
        total = np.zeros_like(self._expected[shard])
        for life, (_, ledgers) in self._lives.items():
            if ledgers[shard].weight:
                total += ledgers[shard].weight / ONE * self._x(life, shard)
        for push, left in self._left.items():
            # Before its offer is sent, no values that could be mixed have left with a push.
            if left and push[3] == shard and push in self._pushed:
                total += left / ONE * self._pushed[push]
        return total

    def _x(self, life: Life, shard: int) -> Values:
        vector, _ = self._lives[life]
        return vector.x[vector.parts[shard]]
