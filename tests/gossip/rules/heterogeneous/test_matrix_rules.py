"""Rules for unequal data do what their equations say, on any network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import pytest

from rumor.gossip.effects.effects import Effect, Record, Snapshot
from rumor.gossip.effects.events import Event, ShareRefused
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Rule, require_lr, requirements_of
from rumor.gossip.rules.heterogeneous.d2 import D2
from rumor.gossip.rules.heterogeneous.decentlam import DecentLaM
from rumor.gossip.rules.heterogeneous.gradient_tracking import GradientTracking
from rumor.gossip.rules.heterogeneous.momentum_tracking import MomentumTracking
from rumor.gossip.rules.heterogeneous.qg_dsgdm import QGDSGDm
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.rules.synchronous.mixing import (
    BESIDE,
    OUT,
    MatrixRule,
    Terms,
    average_beside,
)
from rumor.gossip.rules.synchronous.rounds import SYNCHRONOUS
from rumor.gossip.wire.formats import Form
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.swarm import CALM
from rumor.sim.fuzz.vector import Values
from rumor.sim.kernel.worker import Worker
from rumor.topology import LiveTopology, over

from ...crowd import BAD, LR, PATIENT, Crowd, gradient, starts
from ...scene import Scene, a_push

ROUNDS = 8


def slopes(x: Values) -> Values:
    """Of all peers, rows."""
    return np.array([gradient(place, row) for place, row in enumerate(x)])


Rates = Callable[[int], float]
"""Learning rate of each round, counted from 0."""


def constant(round: int) -> float:
    return LR


def by_d2(matrices: Sequence[Values], x: Values, lr: Rates = constant) -> list[Values]:
    """``X+ = W (2 X - X_before - lr (G - G_before))``; the first step is D-PSGD's.

    Of a rate that changes, ``(X - X_before) / lr`` is what two steps have in common.
    """
    models, x_before, g_before = list[Values](), x, np.zeros_like(x)
    for round, matrix in enumerate(matrices):
        g, ratio = slopes(x), lr(round) / lr(max(0, round - 1))
        corrected = x + ratio * (x - x_before) - lr(round) * (g - g_before)
        x, x_before, g_before = matrix @ corrected, x, g
        models.append(x)
    return models


def by_lazy_d2(matrices: Sequence[Values], x: Values, lr: Rates = constant) -> list[Values]:
    return by_d2([(np.eye(len(x)) + matrix) / 2 for matrix in matrices], x, lr)


def by_qg(
    matrices: Sequence[Values], x: Values, lr: Rates = constant, *, beta: float, mu: float
) -> list[Values]:
    """With the momentum of the paper, which is not scaled by the learning rate."""
    models, m = list[Values](), np.zeros_like(x)
    for round, matrix in enumerate(matrices):
        mixed = matrix @ (x - lr(round) * (beta * m + slopes(x)))
        m = mu * m + (1 - mu) * (x - mixed) / lr(round)
        x = mixed
        models.append(x)
    return models


def by_decentlam(
    matrices: Sequence[Values], x: Values, lr: Rates = constant, *, beta: float
) -> list[Values]:
    models, m = list[Values](), np.zeros_like(x)
    for round, matrix in enumerate(matrices):
        g = (x - matrix @ (x - lr(round) * slopes(x))) / lr(round)
        m = beta * m + g
        x = x - lr(round) * m
        models.append(x)
    return models


def by_gradient_tracking(
    matrices: Sequence[Values], x: Values, lr: Rates = constant
) -> list[Values]:
    """With the correction of the paper, which is not scaled by the learning rate."""
    models, c = list[Values](), np.zeros_like(x)
    for round, matrix in enumerate(matrices):
        g = slopes(x)
        x, c = matrix @ (x - lr(round) * (g - c)), matrix @ (c - g) + g
        models.append(x)
    return models


def by_momentum_tracking(
    matrices: Sequence[Values], x: Values, lr: Rates = constant, *, beta: float
) -> list[Values]:
    """With momentum and correction of the paper, which are not scaled by the learning rate."""
    models, m, c = list[Values](), np.zeros_like(x), np.zeros_like(x)
    for round, matrix in enumerate(matrices):
        m = beta * m + slopes(x)
        x, c = matrix @ x - lr(round) * (m - c), matrix @ (c - m) + m
        models.append(x)
    return models


@dataclass(frozen=True)
class Case:
    make: Callable[[], Rule]
    expected: Callable[..., list[Values]]


CASES = {
    "d2": Case(D2, by_lazy_d2),
    "d2:lazy=false": Case(partial(D2, lazy=False), by_d2),
    "qg-dsgdm": Case(QGDSGDm, partial(by_qg, beta=0.9, mu=0.9)),
    "qg-dsgdm:beta=0.5,mu=0.7": Case(
        partial(QGDSGDm, beta=0.5, mu=0.7), partial(by_qg, beta=0.5, mu=0.7)
    ),
    "decentlam": Case(DecentLaM, partial(by_decentlam, beta=0.9)),
    "decentlam:beta=0.3": Case(partial(DecentLaM, beta=0.3), partial(by_decentlam, beta=0.3)),
    "gradient-tracking": Case(GradientTracking, by_gradient_tracking),
    "momentum-tracking": Case(MomentumTracking, partial(by_momentum_tracking, beta=0.9)),
    "momentum-tracking:beta=0": Case(
        partial(MomentumTracking, beta=0.0), partial(by_momentum_tracking, beta=0.0)
    ),
}
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.mark.extended
@EVERY
@pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])
@pytest.mark.parametrize("spec", ["ring", "exponential", "random-matching", "base-k:k=1"])
def test_models_are_those_of_the_equation(case: Case, spec: str, weather: NetworkConfig) -> None:
    crowd = Crowd(lambda peer: case.make(), 7, LiveTopology(spec, 3), weather)
    if spec == "exponential" and getattr(case.make(), "both_ways", False):
        crowd.run(5.0)
        halts = [why for rule in crowd.rules.values() for why in rule.halts]
        assert "needs edges that go both ways, and that of p00 and p0" in halts[0]
        return
    models = crowd.history(ROUNDS)
    topology = over(spec, 3, crowd.ids)
    matrices = [topology.matrix(round).toarray() for round in range(ROUNDS)]
    np.testing.assert_allclose(models, case.expected(matrices, starts(7)), rtol=0, atol=1e-12)


@EVERY
def test_what_is_in_proportion_to_the_learning_rate_changes_with_it(case: Case) -> None:
    def lr(round: int) -> float:
        return (0.1, 0.1, 0.05, 0.2)[round % 4]

    crowd = Crowd(lambda peer: case.make(), 5, LiveTopology("ring", 3), lr=lr)
    models = crowd.history(ROUNDS)
    matrices = [over("ring", 3, crowd.ids).matrix(round).toarray() for round in range(ROUNDS)]
    np.testing.assert_allclose(models, case.expected(matrices, starts(5), lr), rtol=0, atol=1e-12)
    assert requirements_of(case.make()).lr


@EVERY
def test_a_learning_rate_of_zero_says_nothing_about_the_next(case: Case) -> None:
    crowd = Crowd(
        lambda peer: case.make(), 3, LiveTopology("ring", 3), lr=lambda round: LR * (round != 2)
    )
    assert np.isfinite(crowd.history(ROUNDS)).all()


@EVERY
def test_alone_it_is_its_equation_for_one(case: Case) -> None:
    crowd = Crowd(lambda peer: case.make(), 1, LiveTopology("ring", 0), steps=6)
    expected = case.expected([np.eye(1)] * 5, starts(1))
    np.testing.assert_allclose(crowd.history(5), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", CASES)
def test_it_is_known_by_its_name(spec: str) -> None:
    rule = make_rule(spec)
    assert isinstance(rule, Rule) and rule.name in RULES
    assert type(rule) is type(CASES[spec].make())


@cache
def after(rule: Callable[[], Rule], rounds: int = 400) -> float:
    """How far apart models of unequal data end on a ring, at most."""
    models = np.array(Crowd(lambda peer: rule(), 5, LiveTopology("ring", 0)).history(rounds)[-1])
    return float(np.ptp(models, axis=0).max())


@pytest.mark.extended
@pytest.mark.parametrize("rule", [D2, GradientTracking, MomentumTracking])
def test_where_dpsgd_is_pulled_apart_others_are_not(rule: Callable[[], Rule]) -> None:
    assert after(DPSGD) > 0.05
    assert after(rule) < 1e-9


def pushed(rule: Callable[[], Rule]) -> tuple[set[Form], int]:
    """What shares consist of, and how many were pushed, in some rounds on a calm network."""
    crowd = Crowd(lambda peer: rule(), 4, LiveTopology("ring", 0), steps=5, config=PATIENT)
    forms, escrows, carried = set[Form](), list[Entry](), crowd.swarm.carried

    def look(worker: Worker, effect: Effect | Event) -> None:
        if isinstance(effect, Snapshot):
            forms.add(effect.form)
        elif isinstance(effect, Record) and effect.entry.kind is Kind.PUSHED:
            escrows.append(effect.entry)
        carried(worker, effect)

    crowd.swarm.carried = look  # type: ignore[method-assign]
    crowd.run(60.0, steps=4)
    return forms, len(escrows)


@pytest.mark.parametrize("rule", [GradientTracking, MomentumTracking])
def test_two_vectors_go_in_one_share_with_one_escrow(rule: Callable[[], Rule]) -> None:
    forms, escrows = pushed(DPSGD)
    assert forms == {Form()} and escrows >= 4 * 2 * 4
    assert pushed(rule) == ({Form(registers=2)}, escrows)


class Twice(MatrixRule):
    """Averages the model, and twice the model beside it."""

    name = "twice"
    registers = (*OUT, *BESIDE, "y")
    requirements = replace(SYNCHRONOUS, share_registers=2)

    def start(self, context: RuleContext) -> None:
        context.combine("y", [(2.0, "x")])

    def beside(self) -> Terms:
        return ((1.0, "y"),)

    def take(self, context: RuleContext, average: Terms) -> None:
        context.combine("y", average_beside(average))
        super().take(context, average)


@pytest.mark.parametrize("spec", ["ring", "random-matching"])
def test_what_goes_along_is_averaged_as_the_model_is(spec: str) -> None:
    crowd = Crowd(lambda peer: Twice(), 7, LiveTopology(spec, 3), BAD, descend=False)
    models = crowd.history(ROUNDS)
    assert np.abs(models[-1] - starts(7)).max() > 0.1
    for host in crowd.hosts:
        np.testing.assert_allclose(host.vector.registers["y"], 2 * host.vector.x, atol=1e-12)


def test_two_registers_that_belong_to_no_round_are_sent_back() -> None:
    """What a leaver hands on is one: whoever sends two has lost its way."""
    scene = Scene()
    scene.founded("a", "b", rules={peer: GradientTracking() for peer in "ab"})
    form = Form(registers=2)
    push = a_push(size_bytes=128, form=form)
    scene.receive(scene.letter("a", "b", push, frame_bytes=128))
    effects = scene.step("b", trained=False)
    assert ShareRefused("a", "of several registers, and of no round") in effects


def test_a_peer_with_another_rule_is_named() -> None:
    rules: dict[str, Callable[[], Rule]] = {"p00": DPSGD, "p01": GradientTracking}
    crowd = Crowd(lambda peer: rules[peer](), 2, LiveTopology("complete", 0))
    crowd.run(60.0, steps=2)
    assert crowd.rules["p01"].halts == [
        "a share of p00 carries 1 of the 2 registers that gradient-tracking needs: give all peers "
        "the same rule"
    ]


@pytest.mark.parametrize("lr", [-0.1, float("nan"), float("inf")])
def test_what_is_no_learning_rate_is_refused(lr: float) -> None:
    for fine in (None, 0.0, 0.1):
        require_lr(fine)
    with pytest.raises(ConfigError, match=r"lr is .*: a learning rate is a finite number"):
        require_lr(lr)
