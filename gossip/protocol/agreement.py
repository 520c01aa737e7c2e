"""How finished peers agree: in rounds of pushes, each followed by a comparison of all models.

A round goes through three stages, and a peer tells all others of each. It *pushes* until it has
pushed often enough and everything is settled. Once all have, no model moves: each takes a *sketch*
of its own, some numbers whose distances are those of the models. Once a peer has the sketches of
all, it compares them: they are close enough, or the next round begins. So merging ends by what was
measured, whatever the pace and the links of peers. Where some rounds bring the models no closer,
peers give up, and say so.

Source: Charikar, Chen and Farach-Colton, ICALP 2002, section 3 (the sketch).
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..wire.messages import Member, Phase
from .state import State

__all__ = ["Agreement", "widest_distance"]

_STAGES: Final = 3
_PUSHED: Final = 1
_SKETCHED: Final = 2

_MARGIN: Final = 0.75
"""Distances of sketches are those of models to within some percent: three standard deviations."""

_GAIN: Final = 0.9
_ROUNDS_IN_VAIN_MAX: Final = 8
"""Rounds that each leave more than that part of the distance, after which peers give up."""


class Agreement:
    """One peer's part in the merge.

    Args:
        state: What the protocol remembers.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._pushes = 0
        self._least = math.inf
        self._gained = 0
        """The last round that brought models closer."""
        self.is_over = False
        """Whether there is nothing left to do: models are close, or come no closer."""
        self.reached = False
        """Whether the models of all peers with whom this one merged are within the tolerance."""
        self.distance: float | None = None
        """Largest distance between two models at the last comparison, over the smaller norm; None
        before there was one with another peer."""

    @property
    def compares(self) -> bool:
        """Whether the model must stay as it is until the others' sketches are there."""
        return self._state.table.merge % _STAGES == _SKETCHED and not self.is_over

    @property
    def _round(self) -> int:
        return self._state.table.merge // _STAGES

    def pushed(self, pushes: int) -> None:
        """Count the pushes of a call of the rule; a call with no push target counts, too."""
        self._pushes += max(pushes, int(self._is_alone()))

    def turn(self, *, merging: bool) -> bool:
        """Go on after a call of the rule.

        Args:
            merging: Whether all live peers have finished.

        Returns:
            Whether the others are to be told of another stage.
        """
        state, table = self._state, self._state.table
        if table.only is not None or self.is_over:
            return False  # simulated values are computed later: there is nothing to compare
        others = self._others()
        latest = max([m.merge // _STAGES for m in others], default=0)
        if not merging or latest > self._round:
            if table.merge % _STAGES or latest > self._round:
                self._begin(max(latest, self._round + 1))
            if not merging:
                return False
        stage, told = table.merge % _STAGES, table.merge
        # A slow peer does not make all others wait for as many turns as they have taken.
        state.is_awaited = self._pushes > 0 and all(m.merge > table.merge for m in others)
        if stage == 0 and self._has_pushed():
            # Where a round trip takes many turns, there would always be a push under way.
            state.rests = True
            if self._is_still() and not state.in_flight():
                table.advance(merge=told + _PUSHED)
                stage = _PUSHED
        if stage == _PUSHED and all(m.merge >= table.merge for m in others) and self._is_still():
            state.sketches = True
        elif stage == _SKETCHED:
            self._compare(others)
        return table.merge != told

    def sketched(self, sketch: Sequence[float]) -> bool:
        """Take in a sketch of this peer's model; returns as `turn` does."""
        table = self._state.table
        if table.phase is not Phase.FINISHED or table.merge % _STAGES != _PUSHED:
            return False
        table.advance(merge=table.merge - _PUSHED + _SKETCHED, sketch=tuple(sketch))
        self._compare(self._others())
        return True

    def _others(self) -> list[Member]:
        """Who takes part: members that have finished, and have not closed."""
        table = self._state.table
        return [m for m in table.live() if m.id != table.id and m.phase is Phase.FINISHED]

    def _begin(self, round: int) -> None:
        state, self._pushes = self._state, 0
        state.merge_round, state.rests, state.is_awaited = round, False, False
        state.table.advance(merge=round * _STAGES, sketch=())

    def _has_pushed(self) -> bool:
        state, enough = self._state, self._state.may_close
        if enough is None:
            enough = self._pushes >= state.config.merge_rounds or state.is_awaited
        return enough

    def _is_still(self) -> bool:
        """Whether this peer's model stays as it is unless another peer pushes."""
        state = self._state
        returned = any([each.outbox.returned for each in state.busy_shards])
        return not (returned or state.measuring or state.judging)

    def _compare(self, others: list[Member]) -> None:
        table = self._state.table
        round = table.merge - table.merge % _STAGES
        if any(m.merge < round + _PUSHED for m in others):
            # A peer that was silent, or comes late, may have pushed a share to this one.
            self._begin(self._round + 1)
            return
        alone = self._is_alone()
        if any(m.merge != table.merge for m in others) and not alone:
            return
        own = table.me.sketch
        apart = widest_distance([own, *(m.sketch for m in others)])
        if apart < self._least * _GAIN:
            self._least, self._gained = apart, self._round
        # Peers that hear of the next round before they have compared skip a comparison.
        in_vain = self._round - self._gained
        is_close = apart <= _MARGIN * self._state.config.merge_tolerance
        if not (is_close or in_vain >= _ROUNDS_IN_VAIN_MAX or alone):
            self._begin(self._round + 1)
            return
        # Peers that agreed without this one, or fell silent before they did, count as well.
        closed = [m.sketch for m in table.live() if m.phase is Phase.QUIET and m.id != table.id]
        models = [own, *(m.sketch for m in others), *closed]
        if len(models) > 1:
            self.distance = widest_distance(models)
            is_close = self.distance <= _MARGIN * self._state.config.merge_tolerance
        self.reached = is_close and not any(m.phase is Phase.FINISHED for m in table.dead())
        self.is_over = True
        self._state.close("finished")

    def _is_alone(self) -> bool:
        """Whether there is no peer to which this one could ever push."""
        table = self._state.table
        others = (table.member(peer) for peer in table.takers() if peer != table.id)
        return not any(other is not None and table.can_meet(other) for other in others)


def widest_distance(models: Sequence[Sequence[float]]) -> float:
    """Largest Euclidean distance between two of some vectors, over the smaller of their norms.

    Args:
        models: Sketches, or models; an empty one is of a model whose numbers are not all finite.

    >>> widest_distance([(3.0, 4.0), (3.0, 4.0), (3.0, 4.5)])
    0.1
    """
    if len(models) < 2:
        return 0.0
    if len({len(model) for model in models}) > 1 or not models[0]:
        return math.inf
    rows, widest = np.array(models, np.float64), 0.0
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.square(rows).sum(1))
        for at in range(len(rows) - 1):
            apart = np.sqrt(np.square(rows[at + 1 :] - rows[at]).sum(1))
            relative = np.where(apart == 0, 0.0, apart / np.minimum(norms[at], norms[at + 1 :]))
            widest = max(widest, float(np.where(np.isnan(relative), np.inf, relative).max()))
    return widest
