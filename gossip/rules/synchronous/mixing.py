"""The common part of rules that average once a step with the topology's mixing matrix."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final

from ...effects.effects import Halt, Wait, X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...protocol.share import Pushed, Share, Term
from ...specs.parameter import Parameter
from ...types import PeerId
from ..robust.filters import RobustFilter
from .rounds import NEIGHBORS_MAX, SYNCHRONOUS, RoundRule

__all__ = [
    *("BEFORE", "BESIDE", "OUT", "KeptMomentum", "MatrixRule", "StepRule", "Terms"),
    *("average_beside", "scaled"),
]

Terms = Sequence[tuple[float, Term]]
"""A sum: coefficients, each with its register or share."""

OUT: Final = ("out/0", "out/1")
"""The registers that are sent, alternately."""

BESIDE: Final = ("beside/0", "beside/1")
"""The second registers of shares, alternately, under rules that send two vectors."""

_MODEL: Final[Terms] = ((1.0, X),)

# Rows of a mixing matrix are sums of rounded fractions.
_ROUNDING = 1e-9


class MatrixRule(RoundRule):
    """After every optimizer step, an average over the neighbors of the round.

    Each peer sends a vector to all of them, waits for theirs, and averages by its row of the
    round's mixing matrix W. A rule defines what it sends (`outgoing`; a second vector is `beside`,
    if its `requirements` ask for two registers) and what it does with the average (`take`).
    Averaging weights are not used: each share carries one unit.
    """

    registers: tuple[str, ...] = OUT
    both_ways = False
    """True if W must be symmetric, so that every receiver also sends."""
    neighbors_max = NEIGHBORS_MAX
    topologies = "ring, torus or complete"
    times_lr: tuple[str, ...] = ()
    """Registers to rescale when steps report a new learning rate; `requirements` ask for it."""

    def __init__(self, method: RobustFilter | None = None) -> None:
        # Only for a rule whose shares are models, and so is its own term of the average.
        super().__init__()
        self._method = method
        self.takes_damaged = method is not None
        self._lr: float | None = None
        self._weights: Mapping[PeerId, float] = {}

    def outgoing(self) -> Terms:
        """Return the vector to send, right after the optimizer step."""
        return _MODEL

    def beside(self) -> Terms:
        """Return the second vector of the share, if it carries two registers."""
        return ()

    def take(self, context: RuleContext, average: Terms) -> None:
        """Continue from the average of the sent vectors, this peer's own included."""
        if len(average) > 1:
            context.combine(X, average)

    def step(self, context: RuleContext) -> Wait | Halt | None:
        if context.lr:
            before, self._lr = self._lr or context.lr, context.lr
            for register in self.times_lr if context.lr != before else ():
                context.combine(register, [(context.lr / before, register)])
        return super().step(context)

    @property
    def _out(self) -> str:
        return OUT[self._round % len(OUT)]

    @property
    def _sends_model(self) -> bool:
        """True if shares carry just the model: a peer then need not copy its own."""
        return self.outgoing() is _MODEL and not self.beside()

    def _send(self, context: RuleContext) -> Wait | Halt | None:
        if self._is_sent:
            return None
        weights = context.weights(self._round, self._members)
        neighbors = context.neighbors(self._round, self._members)
        unfit = self._why_unfit(context, weights, neighbors)
        if unfit:
            return Halt(unfit)
        pushed = self._fill(context, neighbors)
        if isinstance(pushed, Wait | Halt):
            return pushed
        self._post(context, pushed, neighbors)
        self._weights, self._is_sent = weights, True
        return None

    def _fill(self, context: RuleContext, neighbors: Sequence[PeerId]) -> Pushed | Wait | Halt:
        out, beside = self._out, self.beside()
        also = BESIDE[self._round % len(BESIDE)]
        pushed: Pushed = (out, also) if beside else out
        outcome = self._unaccepted(context, pushed)
        if outcome is not None:
            return outcome
        if neighbors or not self._sends_model:
            context.combine(out, self.outgoing())
        if beside:
            context.combine(also, beside)
        return pushed

    def _own(self) -> Term:
        return X if self._sends_model else self._out

    def _why_unfit(
        self, context: RuleContext, weights: Mapping[PeerId, float], neighbors: Sequence[PeerId]
    ) -> str:
        one_way = {*weights, context.me} ^ {*neighbors, context.me}
        if self.both_ways and one_way:
            return (
                f"{self.name} needs edges that go both ways, and that of {context.me} and "
                f"{min(one_way)} does not: use a topology such as {self.topologies}, or "
                "another rule"
            )
        if len(neighbors) > self.neighbors_max:
            return (
                f"{self.name} needs at most {self.neighbors_max} neighbor in a round, and "
                f"{context.me} has {len(neighbors)}: use a topology such as {self.topologies}"
            )
        if self._method is not None and min(weights.values(), default=1.0) < 0:
            return (
                f"{self.name} cannot mix robustly with weights below 0, as here in round "
                f"{self._round}: use mixing=metropolis, or another topology"
            )
        total = sum(weights.values())
        if abs(total - 1) > _ROUNDING:
            return (
                f"{self.name} cannot average here: in round {self._round} the weights of what "
                f"{context.me} mixes add up to {total:.4g}, not 1; use another topology, or sgp"
            )
        return ""

    def _average(self, context: RuleContext) -> Wait | Halt | None:
        others = [peer for peer in self._weights if peer != context.me]
        shares = self._gather(context, others)
        if isinstance(shares, Wait | Halt):
            return shares
        for peer, share in shares.items():
            foreign = self._why_foreign(share)
            if foreign:
                return Halt(f"a share of {peer} {foreign}")
        terms = [(self._weights[peer], shares[peer]) for peer in others]
        average: Terms | None = [(self._weights.get(context.me, 0.0), self._own()), *terms]
        if self._method is not None:
            average = self._robust(context, self._method, terms)
        if average is None:
            # The rule is called again at once, with the distances it asked for.
            return Wait(self._round, ())
        self.take(context, average)
        for peer in others:
            context.accept(shares[peer])
        return None

    def _robust(
        self, context: RuleContext, method: RobustFilter, terms: Sequence[tuple[float, Share]]
    ) -> Terms | None:
        """Return ``x + sum_j w_j c_j (x_j - x)``; None while distances are not known."""
        known = [context.distance(s) if s.is_finite else math.inf for _, s in terms]
        distances = [distance for distance in known if distance is not None]
        if len(distances) < len(terms):
            context.measure(*[share for _, share in terms if share.is_finite])
            return None
        parts = method.coefficients(distances, [weight for weight, _ in terms])
        # Left out rather than multiplied by 0: numbers too large to be measured would become nan.
        each = zip(distances, parts, terms, strict=True)
        taken = [(c * w, share) for far, c, (w, share) in each if far < math.inf]
        return [(1.0 - math.fsum([part for part, _ in taken]), self._own()), *taken]

    def _why_foreign(self, share: Share) -> str:
        """Return how a share shows that its sender has other settings; empty if it does not."""
        expected, found = self.requirements.share_registers, share.form.registers
        if found == expected:
            return ""
        return (
            f"carries {found} of the {expected} registers that {self.name} needs: give all peers "
            "the same rule"
        )


def average_beside(average: Terms) -> Terms:
    """Return the same average of the second vectors that shares carry (`MatrixRule.beside`)."""
    return [
        (part, term.part(1) if isinstance(term, Share) else BESIDE[OUT.index(str(term))])
        for part, term in average
    ]


def scaled(factor: float, terms: Iterable[tuple[float, Term]]) -> Terms:
    """Return a sum, times a factor."""
    return [(factor * coefficient, term) for coefficient, term in terms]


BEFORE: Final = "before"
"""The register of the model before the optimizer's step."""

KeptMomentum = Annotated[
    float, Parameter("part of the momentum that a step keeps; .9 in the paper.", low=0, high=1)
]


class StepRule(MatrixRule, ABC):
    """A rule that keeps the model before each step, in `BEFORE`.

    The optimizer must be plain SGD, so that ``BEFORE - x`` is the learning rate times the gradient
    when `outgoing` and `move` are called.
    """

    registers: tuple[str, ...] = (*OUT, BEFORE)
    requirements: Requirements = replace(SYNCHRONOUS, plain_sgd=True, lr=True)

    def start(self, context: RuleContext) -> None:
        context.combine(BEFORE, [(1.0, X)])

    def take(self, context: RuleContext, average: Terms) -> None:
        self.move(context, average)
        context.combine(BEFORE, [(1.0, X)])

    @abstractmethod
    def move(self, context: RuleContext, average: Terms) -> None:
        """Continue from the average of the sent vectors, this peer's own included."""
