"""The weighted sum of all models is conserved, with one exception, which is announced."""

import numpy as np
import pytest

from rumor.gossip.effects.ledger import Account, Entry, Kind
from rumor.gossip.weight import ONE
from rumor.sim.fuzz import Violation
from rumor.sim.fuzz.vector import Vector
from rumor.sim.fuzz.weighted_sum import WeightedSum

HALF = ONE // 2
A, B = ("a", 1), ("b", 1)


class Two:
    """Two founders with different models; each has pushed half, and a has mixed in b's share."""

    def __init__(self) -> None:
        self.weighted_sum = WeightedSum()
        self.accounts = {life: Account(*life) for life in (A, B)}
        self.vectors = {A: Vector(np.full(8, 1.0)), B: Vector(np.full(8, 2.0))}
        for life, vector in self.vectors.items():
            self.weighted_sum.opened(life, vector, [self.accounts[life]])
            self.write(life, Entry(Kind.FOUNDED, ONE))
        for life, other, snapshot in ((A, B, 7), (B, A, 9)):
            self.write(life, Entry(Kind.PUSHED, HALF, *other, 1))
            self.weighted_sum.pushed((life, other, 1, 0), snapshot, self.vectors[life].x.copy())
        self.weighted_sum.check()
        self.vectors[A].x[:] = 1.5
        self.write(A, Entry(Kind.ACCEPTED, HALF, *B, 1))
        self.weighted_sum.check()

    def write(self, life: tuple[str, int], entry: Entry) -> None:
        self.accounts[life].apply(entry)
        self.weighted_sum.entry(life, entry)


@pytest.mark.parametrize("is_stranded", [True, False])
def test_values_may_be_dropped_only_while_their_weight_is_stranded(
    is_stranded: bool,
) -> None:
    two = Two()
    if is_stranded:
        two.write(A, Entry(Kind.STRANDED, 0, *B, 1))
    two.weighted_sum.released(A, 7)
    two.weighted_sum.released(A, 8)
    if is_stranded:
        two.write(A, Entry(Kind.FOUND, 0, *B, 1))
    two.write(A, Entry(Kind.SETTLED, 0, *B, 1))
    if is_stranded:
        two.weighted_sum.check()
    else:
        with pytest.raises(Violation, match="the weighted sum of shard 0 is off by"):
            two.weighted_sum.check()


def test_returned_weight_without_its_values_is_a_violation() -> None:
    two = Two()
    two.vectors[A].x[:] = (1.5 * ONE + 1.0 * HALF) / (ONE + HALF)
    two.write(A, Entry(Kind.SETTLED, 0, *B, 1))
    two.weighted_sum.check()
    two = Two()
    two.write(A, Entry(Kind.SETTLED, 0, *B, 1))
    with pytest.raises(Violation, match="the weighted sum of shard 0 is off"):
        two.weighted_sum.check()


def test_a_stranded_share_that_was_accepted_keeps_the_sum() -> None:
    two = Two()
    two.write(A, Entry(Kind.STRANDED, 0, *B, 1))
    two.weighted_sum.released(A, 7)
    two.vectors[B].x[:] = (2.0 * HALF + 1.0 * HALF) / ONE
    two.write(B, Entry(Kind.ACCEPTED, HALF, *A, 1))
    two.write(A, Entry(Kind.SETTLED, HALF, *B, 1))
    two.weighted_sum.check()
