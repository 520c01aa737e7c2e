"""Rules with outer rounds do what their equations say, on any network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.rules.outer.diloco import DiLoCo
from rumor.gossip.rules.outer.gasloc import GASLoC
from rumor.gossip.rules.outer.local_sgd import LocalSGD
from rumor.gossip.rules.outer.noloco import NoLoCo
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.swarm import CALM
from rumor.sim.fuzz.vector import Values
from rumor.topology import LiveTopology, over

from ...crowd import BAD, LR, Crowd, gradient, starts

H = 3
ROUNDS = 5
N = 7

Models = tuple[Values, list[Values]]


def stepped(x: Values) -> Models:
    """All models after h optimizer steps of each, rows, and after each of those but the last."""
    models = [x]
    for _ in range(H):
        slopes = [gradient(place, row) for place, row in enumerate(models[-1])]
        models.append(models[-1] - LR * np.array(slopes))
    return models[-1], models[1:-1]


def by_local_sgd(matrices: Sequence[Values], x: Values) -> list[Values]:
    models = list[Values]()
    for _ in matrices:
        theta, between = stepped(x)
        x = theta.mean(axis=0) + np.zeros_like(x)
        models += [*between, x]
    return models


def by_diloco(matrices: Sequence[Values], phi: Values, *, lr: float, mu: float) -> list[Values]:
    models, m = list[Values](), np.zeros_like(phi)
    for _ in matrices:
        theta, between = stepped(phi)
        d = phi - theta.mean(axis=0)
        m = mu * m + d
        phi = phi - lr * (d + mu * m)
        models += [*between, phi]
    return models


def by_gasloc(
    matrices: Sequence[Values], theta: Values, *, eta: float, alpha: float, gamma: float
) -> list[Values]:
    models, last = list[Values](), theta
    for matrix in matrices:
        laplacian = np.eye(len(matrix)) - matrix
        x, between = stepped(theta)
        y = theta + eta * (x - theta)
        theta, last = y - alpha * laplacian @ y + gamma * (y - last), y
        models += [*between, theta]
    return models


def by_noloco(
    matrices: Sequence[Values], phi: Values, *, lr: float, mu: float, gamma: float
) -> list[Values]:
    """With both vectors of the paper."""
    models, m = list[Values](), np.zeros_like(phi)
    for matrix in matrices:
        theta, between = stepped(phi)
        m = mu * m + lr * matrix @ (theta - phi) + gamma * (matrix @ phi - phi)
        phi = phi + m
        models += [*between, phi]
    return models


@dataclass(frozen=True)
class Case:
    make: Callable[[], Rule]
    expected: Callable[[Sequence[Values], Values], list[Values]]


ALL = {
    "local-sgd": Case(partial(LocalSGD, h=H), by_local_sgd),
    # Here all steps take as many samples.
    "local-sgd:by_samples=true": Case(partial(LocalSGD, h=H, by_samples=True), by_local_sgd),
    "diloco": Case(partial(DiLoCo, h=H), partial(by_diloco, lr=0.7, mu=0.9)),
    "diloco:lr=0.4,momentum=0.5": Case(
        partial(DiLoCo, h=H, lr=0.4, momentum=0.5), partial(by_diloco, lr=0.4, mu=0.5)
    ),
}
NEIGHBORS = {
    "gasloc": Case(partial(GASLoC, h=H), partial(by_gasloc, eta=0.7, alpha=1.0, gamma=0.2)),
    "gasloc:eta=1.2,alpha=0.5,gamma=0.6": Case(
        partial(GASLoC, h=H, eta=1.2, alpha=0.5, gamma=0.6),
        partial(by_gasloc, eta=1.2, alpha=0.5, gamma=0.6),
    ),
    "noloco": Case(partial(NoLoCo, h=H), partial(by_noloco, lr=0.7, mu=0.5, gamma=1.0)),
    "noloco:gamma=0.7": Case(
        partial(NoLoCo, h=H, gamma=0.7), partial(by_noloco, lr=0.7, mu=0.5, gamma=0.7)
    ),
}
CASES = ALL | NEIGHBORS
WEATHERS = pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])


@pytest.mark.extended
@WEATHERS
@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_with_fixed_members_models_are_those_of_the_equation(
    case: Case, weather: NetworkConfig
) -> None:
    crowd = Crowd(lambda peer: case.make(), N, complete, weather)
    models = crowd.history(ROUNDS * H)
    expected = case.expected([np.eye(N)] * ROUNDS, starts(N))
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-12)
    assert crowd.swarm.invariants.seen["fence"] or weather is CALM
    assert all(witnessed.waits for witnessed in crowd.rules.values())


@pytest.mark.extended
@WEATHERS
@pytest.mark.parametrize("spec", ["random-matching", "ring", "exponential", "one-peer-exponential"])
@pytest.mark.parametrize("case", NEIGHBORS.values(), ids=NEIGHBORS)
def test_over_neighbors_too(case: Case, spec: str, weather: NetworkConfig) -> None:
    crowd = Crowd(lambda peer: case.make(), N, LiveTopology(spec, 3), weather)
    models = crowd.history(ROUNDS * H)
    topology = over(spec, 3, crowd.ids)
    matrices = [topology.matrix(round).toarray() for round in range(ROUNDS)]
    np.testing.assert_allclose(models, case.expected(matrices, starts(N)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_alone_it_is_its_equation_for_one(case: Case) -> None:
    crowd = Crowd(lambda peer: case.make(), 1, LiveTopology("ring", 0))
    expected = case.expected([np.eye(1)] * ROUNDS, starts(1))
    np.testing.assert_allclose(crowd.history(ROUNDS * H), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", CASES)
def test_it_is_known_by_its_name(spec: str) -> None:
    rule = make_rule(spec)
    assert isinstance(rule, Rule) and rule.name in RULES
    assert type(rule) is type(CASES[spec].make())


def test_by_default_they_are_as_published() -> None:
    diloco, noloco = DiLoCo(), NoLoCo()
    assert (diloco.h, diloco.lr, diloco.momentum) == (50, 0.7, 0.9)
    assert (noloco.h, noloco.lr, noloco.momentum, noloco.gamma) == (50, 0.7, 0.5, 1.0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("local-sgd:h=0", "h=0: it must be an integer of at least 1"),
        ("diloco:lr=2.5", r"lr=2.5: it must be in \[0, 2\]"),
        ("diloco:momentum=-0.1", r"momentum=-0.1: it must be in \[0, 1\]"),
        ("gasloc:alpha=1.5", r"alpha=1.5: it must be in \[0, 1\]"),
        ("noloco:gamma=0", r"gamma=0: it must be in \[0.05, 4\]"),
    ],
)
def test_what_is_out_of_range_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_rule(spec)


def history(rule: Callable[[], Rule], rounds: int = ROUNDS, *, alike: bool = False) -> Values:
    return Crowd(lambda peer: rule(), N, complete, BAD, alike=alike).history(rounds * H)


def test_diloco_of_one_model_takes_nesterov_steps_on_the_mean_of_what_changed() -> None:
    """As published: phi is the same everywhere, and d the mean of phi - theta."""
    phi, m = starts(N)[0], np.zeros(starts(N).shape[1])
    models = history(partial(DiLoCo, h=H), alike=True)
    for after in models[H - 1 :: H]:
        theta, _ = stepped(np.tile(phi, (N, 1)))
        d = (phi - theta).mean(axis=0)
        m = 0.9 * m + d
        phi = phi - 0.7 * (d + 0.9 * m)
        np.testing.assert_allclose(after, np.tile(phi, (N, 1)), rtol=0, atol=1e-12)
        # Whatever has come in which order, all have the same bits.
        assert (after == after[0]).all()


def test_diloco_that_steps_to_the_mean_is_local_sgd() -> None:
    plain = history(partial(LocalSGD, h=H))
    stepping = history(partial(DiLoCo, h=H, lr=1.0, momentum=0.0))
    np.testing.assert_allclose(stepping, plain, rtol=0, atol=1e-15)


def test_gasloc_without_momentum_is_gossip_of_local_steps() -> None:
    crowd = Crowd(lambda peer: GASLoC(h=H, eta=1.0, gamma=0.0), N, LiveTopology("ring", 0), BAD)
    x, after = starts(N), crowd.history(ROUNDS * H)[H - 1 :: H]
    matrix = over("ring", 0, crowd.ids).matrix(0).toarray()
    for models in after:
        x = matrix @ stepped(x)[0]
        np.testing.assert_allclose(models, x, rtol=0, atol=1e-12)


@pytest.mark.extended
@pytest.mark.parametrize(("lr", "mu"), [(0.7, 0.9), (0.4, 0.9), (1.0, 0.5), (1.2, 0.9)])
def test_what_diloco_models_differ_by_shrinks_geometrically(lr: float, mu: float) -> None:
    """Whatever the peers have begun with, and whatever they learn."""
    models = history(partial(DiLoCo, h=H, lr=lr, momentum=mu), 30)[H - 1 :: H]
    e = np.ptp(models, axis=1).max(axis=1)
    step = np.array([[1 - lr * (1 + mu), -lr * mu**2], [1.0, mu]])
    radius = np.abs(np.linalg.eigvals(step)).max()
    assert radius < 1
    # The power of such a map may be some times larger than that of its radius.
    assert e[-1] < 30 * radius ** (len(e) - 1) * e[0] + 1e-12
    if (lr, mu) == (0.7, 0.9):
        assert radius == pytest.approx((mu * (1 - lr)) ** 0.5) == pytest.approx(0.52, abs=0.001)


def test_peers_may_differ_in_their_number_of_local_steps() -> None:
    """A partner with more of them is waited for; equal rounds are averaged."""
    steps = {"p00": 2, "p01": 5}
    crowd = Crowd(lambda peer: GASLoC(h=steps[peer], eta=1.0, gamma=0.0), 2, complete)
    crowd.run(100.0, steps=20)
    x = starts(2)
    for round in range(4):
        ends = []
        for place, peer in enumerate(crowd.ids):
            row = x[place]
            for _ in range(steps[peer]):
                row = row - LR * gradient(place, row)
            ends.append(row)
        x = np.tile(np.mean(ends, axis=0), (2, 1))
        for place, peer in enumerate(crowd.ids):
            after = crowd.before[peer][steps[peer] * (round + 1)]
            np.testing.assert_allclose(after, x[place], rtol=0, atol=1e-12)
