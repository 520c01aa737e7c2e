"""GoSGD: every peer takes its own steps and now and then pushes half of its weight."""

from typing import Literal, get_args

from .effects import Wait
from .errors import ConfigError
from .rule import Demands
from .turn import Turn

__all__ = ["Emission", "GoSGD"]

Emission = Literal["per-step", "per-second", "adaptive"]

# A step counts for a tenth: some ten of them tell how long one takes.
_SMOOTHING = 0.1


class GoSGD:
    """Sum-weight gossip, asynchronous: nobody ever waits.

    Args:
        p: With emission per step, the probability of a push at each step, in [0, 1]: each *peer*
            then counts the same, whatever its speed (right where peers hold different data). Per
            second, the mean number of pushes in a second: each *step* counts the same (right for
            alike data). Both hold on regular graphs. Adaptive, the part of its time, in [0, 1], in
            which a peer has a share under way: as per step where an answer comes within a
            step, and ever more rarely where it takes longer, so that slow links stay free for
            others. Peers with slow links then weigh more.
        emission: ``"per-step"``, ``"per-second"`` or ``"adaptive"``.
        outstanding_max: Shares that may be outstanding at once; beyond it pushes are skipped.

    Raises:
        ConfigError: An argument is out of range.

    Source: Blot, Picard, Cord and Thome 2016, algorithm 1; emission per second and the adaptive one
    are ours.
    """

    name = "gosgd"
    registers: tuple[str, ...] = ()
    demands = Demands(whole=False)

    def __init__(
        self, p: float = 0.1, *, emission: Emission = "per-step", outstanding_max: int = 2
    ) -> None:
        if emission not in get_args(Emission):
            allowed = " or ".join(get_args(Emission))
            raise ConfigError(f"emission is {emission!r}: it must be {allowed}")
        if not 0 <= p or (emission != "per-second" and p > 1):
            raise ConfigError(
                f"p is {p}: it must be in [0, 1], or with emission per second a rate of at least 0"
            )
        if outstanding_max < 1:
            raise ConfigError(f"outstanding_max is {outstanding_max}: it must be at least 1")
        self.p = p
        self.emission = emission
        self.outstanding_max = outstanding_max
        self._step_s: float | None = None

    def step(self, turn: Turn) -> Wait | None:
        """Take the turn between two optimizer steps.

        The published loop is mix, step, push. A turn lies after the step, so it ends one pass of
        that loop and begins the next: it pushes first.
        """
        for _ in range(self._pushes_due(turn)):
            turn.push_half()
        for share in turn.shares():
            turn.mix(share)
        return None

    def _pushes_due(self, turn: Turn) -> int:
        # Nobody trains any more: nothing competes for the link, and agreement is all that counts.
        if turn.merging:
            return 1
        if self.emission == "per-second":
            return int(turn.rng.poisson(self.p * turn.elapsed_s))
        p = self.p if self.emission == "per-step" else self.p * self._steps_per_trip(turn)
        return int(turn.rng.random() < p)

    def _steps_per_trip(self, turn: Turn) -> float:
        """The part of a push and its answer that fits into one step, at most 1."""
        if turn.trained and turn.elapsed_s > 0:
            before_s = self._step_s or turn.elapsed_s
            self._step_s = before_s + _SMOOTHING * (turn.elapsed_s - before_s)
        trip_s = turn.roundtrip_s()
        if not trip_s or self._step_s is None:
            return 1.0
        return min(1.0, self._step_s / trip_s)
