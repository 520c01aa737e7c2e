"""Each rule follows its equation on any topology and network, alone and with other peers."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.protocol.share import Share
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.gossip.rules.robust.filters import parse_robust
from rumor.gossip.types import PeerId
from rumor.gossip.weight import mixing_fraction
from rumor.gossip.wire.formats import parse_wire
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.swarm import CALM
from rumor.sim.fuzz.vector import SIZE, Values, decoded, encoded, schema_of
from rumor.topology import Topology, over, parse
from rumor.topology.live import LiveTopology

from ...rules import NOT_PLAIN_ALONE, spec_of
from ..crowd import BAD, CONFIG, LR, Crowd, gradient, starts

Rates = Callable[[int], float]
"""Learning rate of each step, counted from 0."""

N, ROUNDS, H = 7, 8, 3
"""The longest schedule of seven peers has a period of 5, and the longest tree is 6 wide."""


def constant(step: int) -> float:
    return LR


def gradients(x: Values) -> Values:
    """Return the gradients of all peers, as rows."""
    return np.array([gradient(index, row) for index, row in enumerate(x)])


def matrices(topology: Topology, rounds: int = ROUNDS) -> Iterator[tuple[int, Values]]:
    """The matrix W of each round."""
    return ((round, topology.matrix(round).toarray()) for round in range(rounds))


def stepped(x: Values) -> tuple[Values, list[Values]]:
    """Return models (rows are peers) after H optimizer steps, and after each step but the last."""
    models = [x]
    for _ in range(H):
        models.append(models[-1] - LR * gradients(models[-1]))
    return models[-1], models[1:-1]


def rounded(wire: str, x: Values) -> Values:
    """Return rows of numbers as receivers decode them; rounding is deterministic here."""
    format, buffer = parse_wire(wire), np.zeros(2 * SIZE)
    found = []
    for row in x:
        buffer[:SIZE] = row
        found.append(decoded(format, encoded(format, buffer, None), np.zeros(SIZE)))
    return np.array(found)


def by_dpsgd(topology: Topology, x: Values, lr: Rates, wire: str) -> Iterator[Values]:
    """``X <- W (X - lr G)``; rows are peers."""
    for round, w in matrices(topology):
        x = w @ (x - lr(round) * gradients(x))
        yield x


def by_robust_dpsgd(
    topology: Topology, x: Values, lr: Rates, wire: str, *, robust: str
) -> Iterator[Values]:
    """``x_i <- x_i + sum_j w_ij c_j (x_j - x_i)`` with c from the distances of the round."""
    method = parse_robust(robust)
    assert method is not None
    for round, w in matrices(topology):
        theta = x - lr(round) * gradients(x)
        x = theta.copy()
        for me, row in enumerate(w):
            others = [index for index in np.flatnonzero(row) if index != me]
            distances = [float(np.linalg.norm(theta[other] - theta[me])) for other in others]
            parts = method.coefficients(distances, [float(row[other]) for other in others])
            for c, j in zip(parts, others, strict=True):
                x[me] += row[j] * c * (theta[j] - theta[me])
        yield x


def by_allreduce(topology: Topology, x: Values, lr: Rates, wire: str) -> Iterator[Values]:
    for round in range(ROUNDS):
        x = np.tile((x - lr(round) * gradients(x)).mean(axis=0), (len(x), 1))
        yield x


def by_swap(topology: Topology, x: Values, lr: Rates, wire: str) -> Iterator[Values]:
    """The peers of each pair exchange their models."""
    for round in range(ROUNDS):
        partners = [topology.neighbors(node, round) or (node,) for node in range(len(x))]
        x = (x - lr(round) * gradients(x))[[partner for (partner,) in partners]]
        yield x


def by_d2(topology: Topology, x: Values, lr: Rates, wire: str, *, lazy: bool) -> Iterator[Values]:
    """``X+ = W (2 X - X_before - lr (G - G_before))``; the first step is D-PSGD's.

    If the learning rate changes, ``(X - X_before) / lr`` is what two steps have in common.
    """
    x_before, g_before = x, np.zeros_like(x)
    for round, w in matrices(topology):
        w = (np.eye(len(x)) + w) / 2 if lazy else w
        g, ratio = gradients(x), lr(round) / lr(max(0, round - 1))
        corrected = x + ratio * (x - x_before) - lr(round) * (g - g_before)
        x, x_before, g_before = w @ corrected, x, g
        yield x


def by_qg(
    topology: Topology, x: Values, lr: Rates, wire: str, *, beta: float, mu: float
) -> Iterator[Values]:
    """With the momentum of the paper, which is not scaled by the learning rate."""
    m = np.zeros_like(x)
    for round, w in matrices(topology):
        mixed = w @ (x - lr(round) * (beta * m + gradients(x)))
        m = mu * m + (1 - mu) * (x - mixed) / lr(round)
        x = mixed
        yield x


def by_decentlam(
    topology: Topology, x: Values, lr: Rates, wire: str, *, beta: float
) -> Iterator[Values]:
    m = np.zeros_like(x)
    for round, w in matrices(topology):
        m = beta * m + (x - w @ (x - lr(round) * gradients(x))) / lr(round)
        x = x - lr(round) * m
        yield x


def by_momentum_tracking(
    topology: Topology, x: Values, lr: Rates, wire: str, *, beta: float
) -> Iterator[Values]:
    """With momentum and correction of the paper, which are not scaled by the learning rate."""
    m, c = np.zeros_like(x), np.zeros_like(x)
    for round, w in matrices(topology):
        m = beta * m + gradients(x)
        x, c = w @ x - lr(round) * (m - c), w @ (c - m) + m
        yield x


def by_gradient_tracking(topology: Topology, x: Values, lr: Rates, wire: str) -> Iterator[Values]:
    """With the correction of the paper, which is not scaled by the learning rate."""
    c = np.zeros_like(x)
    for round, w in matrices(topology):
        g = gradients(x)
        x, c = w @ (x - lr(round) * (g - c)), w @ (c - g) + g
        yield x


def by_choco(topology: Topology, x: Values, lr: Rates, wire: str) -> Iterator[Values]:
    """Algorithm 2 of the paper, with every xhat and gamma 0.3; the first q is exact."""
    xhat, w = np.zeros_like(x), topology.matrix(0).toarray()
    for round in range(ROUNDS):
        x = x - lr(round) * gradients(x)
        q = x - xhat
        xhat = xhat + (rounded(wire, q) if round else q)
        x = x + 0.3 * (w @ xhat - xhat)
        yield x


def by_relaysgd(topology: Topology, x: Values, lr: Rates, wire: str) -> Iterator[Values]:
    """The authors' loop; a message carries the mean of the models that it sums up."""
    n, first = len(x), x.copy()
    edges = [topology.neighbors(node) for node in range(n)]
    sums: dict[tuple[int, int], Values] = {}
    counts: dict[tuple[int, int], int] = {}
    for round in range(ROUNDS + 1):
        x, messages, of = x - lr(round) * gradients(x), {}, {}
        for i in range(n):
            for j in edges[i]:
                others = [(k, i) for k in edges[i] if k != j and (k, i) in sums]
                of[i, j] = 1 + sum(counts[each] for each in others)
                total = x[i] + sum((sums[each] for each in others), np.zeros(SIZE))
                messages[i, j] = of[i, j] * rounded(wire, total[None] / of[i, j])[0]
        sums, counts = messages, of
        for i in range(n):
            count = 1 + sum(counts[k, i] for k in edges[i])
            x[i] = (x[i] + sum(sums[k, i] for k in edges[i]) + (n - count) * first[i]) / n
        yield x.copy()


def by_sparseloco(
    topology: Topology, x: Values, lr: Rates, wire: str, *, outer: float, decay: float
) -> Iterator[Values]:
    """Algorithm 1 of the paper, from the mean of all models at the end of the first round."""
    phi, error = np.zeros(SIZE), np.zeros_like(x)
    for step in range(5 * H + 1):
        x = x - lr(step) * gradients(x)
        if (step + 1) % H == 0:
            if step < H:
                phi = x.mean(0)
            else:
                error = decay * error + (phi - x)
                sent = rounded(wire, error)
                error = error - sent
                phi = phi - outer * sent.mean(0)
            x = np.tile(phi, (len(x), 1))
        yield x


def by_diloco(
    topology: Topology, phi: Values, lr: Rates, wire: str, *, outer: float, mu: float
) -> Iterator[Values]:
    """Local SGD with a rate of 1 and no momentum."""
    m = np.zeros_like(phi)
    for _ in range(5):
        theta, between = stepped(phi)
        d = phi - theta.mean(axis=0)
        m = mu * m + d
        phi = phi - outer * (d + mu * m)
        yield from (*between, phi)


def by_gasloc(
    topology: Topology, theta: Values, lr: Rates, wire: str, *, eta: float, **other: float
) -> Iterator[Values]:
    last = theta
    for _, w in matrices(topology, 5):
        x, between = stepped(theta)
        y = theta + eta * (x - theta)
        theta, last = y - other["alpha"] * (y - w @ y) + other["gamma"] * (y - last), y
        yield from (*between, theta)


def by_noloco(
    topology: Topology, phi: Values, lr: Rates, wire: str, *, gamma: float
) -> Iterator[Values]:
    """With both vectors of the paper."""
    m = np.zeros_like(phi)
    for _, w in matrices(topology, 5):
        theta, between = stepped(phi)
        m = 0.5 * m + 0.7 * w @ (theta - phi) + gamma * (w @ phi - phi)
        phi = phi + m
        yield from (*between, phi)


@dataclass(frozen=True)
class Case:
    """The expected models of a rule, with the topologies and formats to check.

    The first topology and format are always checked, the others only in extended tests.
    """

    expected: Callable[[Topology, Values, Rates, str], Iterator[Values]]
    topologies: Sequence[str] = ("ring", "exponential", "random-matching", "base-k:k=1")
    wires: Sequence[str] = ("float32",)
    n: int = N


SOME = ("ring", "random-matching", "base-k:k=1")
"""Topologies with undirected edges."""

ALL = ("complete",)
OUTER = ("random-matching", "ring", "exponential", "one-peer-exponential")

CASES = {
    "dpsgd": Case(
        by_dpsgd,
        (*SOME, "star", "tree", "exponential", "one-peer-exponential", "complete"),
    ),
    "dpsgd:robust=clip": Case(partial(by_robust_dpsgd, robust="clip"), ALL, n=6),
    "dpsgd:robust=clip:tau=0.3": Case(partial(by_robust_dpsgd, robust="clip:tau=0.3"), ALL, n=6),
    "dpsgd:robust=scc": Case(partial(by_robust_dpsgd, robust="scc"), ALL, n=6),
    "dpsgd:robust=cs+": Case(partial(by_robust_dpsgd, robust="cs+"), ALL, n=6),
    "dpsgd:robust=nna": Case(partial(by_robust_dpsgd, robust="nna"), ALL, n=6),
    "allreduce": Case(by_allreduce),
    "hybrid": Case(by_allreduce, ALL),
    "swap": Case(by_swap, ("random-matching", "base-k:k=1")),
    "d2": Case(partial(by_d2, lazy=True), SOME),
    "d2:lazy=false": Case(partial(by_d2, lazy=False), SOME),
    "qg-dsgdm": Case(partial(by_qg, beta=0.9, mu=0.9)),
    "qg-dsgdm:beta=0.5,mu=0.7": Case(partial(by_qg, beta=0.5, mu=0.7)),
    "decentlam": Case(partial(by_decentlam, beta=0.9), SOME),
    "decentlam:beta=0.3": Case(partial(by_decentlam, beta=0.3), SOME),
    "gradient-tracking": Case(by_gradient_tracking),
    "momentum-tracking": Case(partial(by_momentum_tracking, beta=0.9)),
    "momentum-tracking:beta=0": Case(partial(by_momentum_tracking, beta=0.0)),
    "relaysgd": Case(
        by_relaysgd, ("tree", "path", "star"), ("float32", "float16", "bfloat16", "int8")
    ),
    "choco:gamma=0.3": Case(
        by_choco, ("ring", "star"), ("float32", "bfloat16", "float16", "int8", "topk:0.3"), 6
    ),
    "sparseloco:h=3,lr=0.4,decay=0.95": Case(
        partial(by_sparseloco, outer=0.4, decay=0.95),
        ALL,
        ("topk:0.3", "float32", "bfloat16", "int8"),
        4,
    ),
    "sparseloco:h=3,lr=1.0,decay=0.0": Case(
        partial(by_sparseloco, outer=1.0, decay=0.0),
        ALL,
        ("topk:0.3", "float32", "bfloat16", "int8"),
        4,
    ),
    "local-sgd:h=3": Case(partial(by_diloco, outer=1.0, mu=0.0), ALL),
    "diloco:h=3": Case(partial(by_diloco, outer=0.7, mu=0.9), ALL),
    "diloco:h=3,lr=0.4,momentum=0.5": Case(partial(by_diloco, outer=0.4, mu=0.5), ALL),
    "gasloc:h=3": Case(partial(by_gasloc, eta=0.7, alpha=1.0, gamma=0.2), OUTER),
    "gasloc:h=3,eta=1.2,alpha=0.5,gamma=0.6": Case(
        partial(by_gasloc, eta=1.2, alpha=0.5, gamma=0.6), OUTER
    ),
    "noloco:h=3": Case(partial(by_noloco, gamma=1.0), OUTER),
    "noloco:h=3,gamma=0.7": Case(partial(by_noloco, gamma=0.7), OUTER),
}
CALM_LATER = pytest.param(CALM, marks=pytest.mark.extended)
WEATHERS = pytest.mark.parametrize("weather", [CALM_LATER, BAD], ids=["calm", "bad"])


def cases(*, first: bool) -> list[tuple[str, str, str]]:
    """Return specs, topologies and formats: the first of each case, or all others."""
    return [
        (spec, topology, wire)
        for spec, case in CASES.items()
        for topology in case.topologies
        for wire in case.wires
        if ((topology, wire) == (case.topologies[0], case.wires[0])) is first
    ]


def check_case(
    spec: str, topology: str, weather: NetworkConfig, wire: str, lr: Rates | None
) -> None:
    case = CASES[spec]
    config = replace(CONFIG, wire=wire)
    make = partial(make_rule, spec)
    crowd = Crowd(
        lambda _: make(), case.n, LiveTopology(topology, 3), weather, config=config, lr=lr
    )
    over_peers = over(topology, 3, crowd.ids)
    expected = [*case.expected(over_peers, starts(case.n), lr or constant, wire)]
    models = crowd.history(len(expected))
    robust = "robust" in spec
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-9 if robust else 1e-12)
    if spec.startswith(("allreduce", "sparseloco")):
        ends = models if spec == "allreduce" else models[H - 1 :: H]
        assert (ends == ends[:, :1]).all(), "all peers have the same bits"
    assert not any(recorded.halts for recorded in crowd.rules.values())


def weather_cases() -> Iterator[Any]:
    """Yield first cases: each rule on the bad network, its variants on the calm network."""
    rules = set[str]()
    for spec, topology, wire in cases(first=True):
        name = spec.partition(":")[0]
        for weather, label in ((CALM, "calm"), (BAD, "bad")):
            is_later = (weather is CALM) is (name not in rules)
            marks = [pytest.mark.extended] if is_later else []
            yield pytest.param(spec, topology, wire, weather, id=f"{spec}-{label}", marks=marks)
        rules.add(name)


@pytest.mark.parametrize(("spec", "topology", "wire", "weather"), [*weather_cases()])
def test_models_follow_the_equation(
    spec: str, topology: str, wire: str, weather: NetworkConfig
) -> None:
    check_case(spec, topology, weather, wire, None)


@pytest.mark.extended
@WEATHERS
@pytest.mark.parametrize(("spec", "topology", "wire"), cases(first=False))
def test_models_follow_the_equation_on_other_topologies_and_formats(
    spec: str, topology: str, wire: str, weather: NetworkConfig
) -> None:
    check_case(spec, topology, weather, wire, None)


USES_LR = [spec for spec in CASES if requirements_of(make_rule(spec)).lr]


@pytest.mark.extended
@pytest.mark.parametrize("spec", USES_LR)
def test_registers_follow_a_changing_learning_rate(spec: str) -> None:
    check_case(spec, "ring", CALM, "float32", lambda step: (0.1, 0.1, 0.05, 0.2)[step % 4])
    # A rate of zero must not affect the next step.
    make = partial(make_rule, spec)
    crowd = Crowd(lambda peer: make(), 3, LiveTopology("ring", 3), lr=lambda step: LR * (step != 2))
    assert np.isfinite(crowd.history(ROUNDS)).all()


# With sparseloco a lone peer runs plain SGD.
@pytest.mark.parametrize("spec", [spec for spec in CASES if not spec.startswith("sparseloco")])
def test_a_lone_peer_follows_the_equation_for_one_peer(spec: str) -> None:
    make = partial(make_rule, spec)
    crowd = Crowd(lambda peer: make(), 1, LiveTopology("ring", 0))
    wire = "float32"
    expected = [*CASES[spec].expected(parse("ring", 1), starts(1), constant, wire)]
    np.testing.assert_allclose(crowd.history(len(expected)), expected, rtol=0, atol=1e-12)


WITH_OUTER_MOMENTUM = ("diloco", "gasloc", "noloco")
PLAIN_ALONE = [name for name in RULES if name not in (*NOT_PLAIN_ALONE, *WITH_OUTER_MOMENTUM)]


@pytest.mark.parametrize("name", PLAIN_ALONE)
def test_a_lone_peer_runs_bitwise_plain_sgd_with_other_rules(name: str) -> None:
    make = partial(make_rule, spec_of(name))
    crowd = Crowd(lambda peer: make(), 1, LiveTopology("ring", 0), steps=11, size=20)
    x = starts(1, 20)
    for model in crowd.history(10):
        x = np.array([x[0] - LR * gradient(0, x[0])])
        assert (model == x).all()
    crowd.run(1000.0)
    assert not crowd.swarm.running() and not crowd.hosts[0].protocol.state.kept


class LoggedRule:
    """A rule that logs its effects in order."""

    def __init__(self, rule: Any, me: PeerId, log: list[tuple[Any, ...]]) -> None:
        self.rule, self._me, self._log = rule, me, log
        self.name, self.registers = rule.name, rule.registers
        self.outstanding_max, self.requirements = rule.outstanding_max, requirements_of(rule)
        self._seqs: Counter[tuple[PeerId, int]] = Counter()

    def step(self, context: RuleContext) -> Any:
        push, mix, combine = context.push, context.mix, context.combine

        def log_push(peer: PeerId, weight: int, *, shard: int = 0, **options: Any) -> None:
            push(peer, weight, shard=shard, **options)
            self._seqs[peer, shard] += 1
            self._log.append(("push", self._me, peer, shard, self._seqs[peer, shard]))

        def log_mix(share: Share, weight: int | None = None) -> None:
            part = mixing_fraction(context.weight_of(share.id.shard), share.weight)
            self._log.append(("mix", self._me, share.id, part))
            mix(share, weight)

        def log_mean(register: str, terms: Any) -> None:
            parts, (own, *others) = zip(*terms, strict=True)
            assert register == own == "x" and set(parts) == {1 / len(parts)}
            self._log.append(("mean", self._me, [share.id for share in others]))
            combine(register, terms)

        context.push, context.mix, context.combine = log_push, log_mix, log_mean  # type: ignore[method-assign]
        return self.rule.step(context)


N_NUMBERS = 38
"""Forty numbers with padding: five cache lines."""

IN_ORDER = {
    "gosgd:p=0.5": schema_of(N_NUMBERS, 1),
    "sgp": schema_of(N_NUMBERS, 1),
    "epidemic": schema_of(N_NUMBERS, 1),
    "sparta:fraction=0.2": schema_of(N_NUMBERS, 5, scattered=True),
    "divshare:fraction=0.25": schema_of(N_NUMBERS, 4),
}
"""Rules whose peers never wait, with the schema of each."""


@WEATHERS
@pytest.mark.parametrize("spec", IN_ORDER)
def test_asynchronous_models_follow_from_the_order_of_events(
    spec: str, weather: NetworkConfig
) -> None:
    schema, log = IN_ORDER[spec], list[tuple[Any, ...]]()
    crowd = Crowd(
        lambda peer: LoggedRule(make_rule(spec), peer, log),
        6,
        LiveTopology("exponential", 0),
        weather,
        size=N_NUMBERS,
    )
    crowd.on_step = lambda peer: log.append(("train", peer))
    crowd.run(200.0, steps=30)
    index_of = {peer: index for index, peer in enumerate(crowd.ids)}
    numbers = [(8 * schema.lines(k)[:, None] + range(8)).ravel() for k in range(schema.shards)]
    own = [each[each < N_NUMBERS] for each in numbers]
    x, pushed, mixed = starts(6, N_NUMBERS), dict[tuple[PeerId, ...], Values](), Counter[int]()
    for event, peer, *rest in log:
        i = index_of[peer]
        match event, *rest:
            case ["train"]:
                x[i] -= LR * gradient(i, x[i])
            case ["push", to, shard, seq]:
                pushed[peer, to, shard, seq] = x[i, own[shard]].copy()
            case ["mix", id, part]:
                received = pushed[id.sender, peer, id.shard, id.seq]
                x[i, own[id.shard]] += part * (received - x[i, own[id.shard]])
                mixed[id.shard] += 1
            case ["mean", ids]:
                models = [pushed[id.sender, peer, id.shard, id.seq] for id in ids]
                x[i] = np.mean([x[i], *models], axis=0)
                mixed[0] += 1
    np.testing.assert_allclose(crowd.models, x, rtol=0, atol=1e-12)
    assert len(mixed) == schema.shards and min(mixed.values()) > 5
    assert not any(recorded.waits for recorded in crowd.rules.values())
