"""D-PSGD: after every step, average with all neighbors, round by round."""

from collections.abc import Mapping

from ...effects.effects import Halt, Wait, X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...types import PeerId
from .rounds import NEIGHBORS_MAX, SYNCHRONOUS, Rounds

__all__ = ["DPSGD"]

# Rows of a mixing matrix are sums of rounded fractions.
_ROUNDING = 1e-9


class DPSGD:
    """``X <- (X - lr G) W``, synchronous: a round waits for everybody that a peer mixes from.

    Adapt, then combine: the optimizer, any optimizer, takes its step, and the result is averaged
    with the topology's mixing matrix of the round. (As published, ``X W - lr G``, the average is
    of the models before the step.) The weights of peers are not used, a share carries one unit.

    Source: Lian, Zhang, Zhang, Hsieh, Zhang and Liu, NeurIPS 2017, algorithm 1.
    """

    name = "dpsgd"
    summary = "the mean of neighbors, by the mixing matrix"
    registers: tuple[str, ...] = ("out/0", "out/1")
    outstanding_max = NEIGHBORS_MAX
    requirements: Requirements = SYNCHRONOUS

    def __init__(self) -> None:
        self._rounds = Rounds(self.name, agrees=False)
        self._round = 0
        self._weights: Mapping[PeerId, float] = {}
        self._is_due = self._is_sent = False

    def step(self, context: RuleContext) -> Wait | Halt | None:
        """Send the model of this round, and average once all shares of it are here."""
        self._rounds.tend(context, self._round)
        self._is_due = self._is_due or context.trained
        if self._is_due:
            outcome = self._rounds.open(context) or self._send(context) or self._average(context)
            if outcome is not None:
                return outcome
            self._round += 1
            self._is_due = self._is_sent = False
        self._rounds.rest(context)
        return None

    def _send(self, context: RuleContext) -> Wait | Halt | None:
        if self._is_sent:
            return None
        rounds, register = self._rounds, f"out/{self._round % 2}"
        weights = context.weights(self._round, rounds.members)
        total = sum(weights.values())
        if abs(total - 1) > _ROUNDING:
            return Halt(
                f"dpsgd cannot average here: in round {self._round} the weights of what "
                f"{context.me} mixes add up to {total:.4g}, not 1; use another topology, or sgp"
            )
        outcome = rounds.unaccepted(context, self._round, register)
        if outcome is None:
            neighbors = context.neighbors(self._round, rounds.members)
            if neighbors:
                context.combine(register, [(1.0, X)])
            rounds.post(context, self._round, register, neighbors)
            self._weights, self._is_sent = weights, True
        return outcome

    def _average(self, context: RuleContext) -> Wait | Halt | None:
        others = [peer for peer in self._weights if peer != context.me]
        shares = self._rounds.gather(context, self._round, others)
        missing = [peer for peer in others if peer not in shares]
        if missing:
            return self._rounds.wait_for(context, self._round, missing)
        if others:
            own = self._weights.get(context.me, 0.0)
            context.combine(X, [(own, X), *((self._weights[p], shares[p]) for p in others)])
        for peer in others:
            context.accept(shares[peer])
        return None
