"""Results of papers and of algebra about gossip, compared with swarms of plain vectors.

Formulas are written here only. A *round* is one step of all workers, at equal speeds.
"""

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest

from rumor.gossip import GoSGD, Rule
from rumor.gossip.rules.asynchronous.adpsgd import ADPSGD
from rumor.gossip.rules.asynchronous.sgp import SGP
from rumor.sim import NetworkConfig, simulate
from rumor.sim.batched.vector_tasks import consensus, noise
from rumor.topology import parse

from ..bare import STEP_S, Point, run_bare

SIZES = pytest.mark.parametrize(
    "size", [pytest.param(1, id="quarter"), pytest.param(4, id="full", marks=pytest.mark.slow)]
)
"""Estimates from random numbers scatter half as much with four times as many."""

EXACT = 1e-25
"""Sums of squares of rounding errors of float64, and far above them."""


def stationary(rule: str, topology: str, *, p: float | None = None, **settings: Any) -> float:
    """Stationary disagreement under unit noise."""
    run = simulate(rule=rule, topology=topology, p=p, step_s=STEP_S, **settings)
    return float(run.summary["disagreement_stationary"])


PUBLISHED = {
    ("complete", 0.4): 36.5,
    ("ring", 0.4): 55.4,
    ("complete", 0.01): 1398.0,
    ("ring", 0.01): 2230.0,
}


@pytest.mark.extended
@SIZES
@pytest.mark.parametrize(("topology", "ours"), [("complete", 37.2), ("ring", 52.3)])
def test_noise_of_gosgd_with_frequent_pushes(topology: str, ours: float, size: int) -> None:
    found = with_frequent_pushes(topology, "ideal", size)
    assert found == pytest.approx(ours, rel=0.12 / sqrt(size))
    assert found == pytest.approx(PUBLISHED[topology, 0.4], rel=0.15 / sqrt(size) + 0.025)


def with_frequent_pushes(topology: str, network: str, size: int) -> float:
    """The mean of runs; it scatters by 4 % at a quarter of the size, and by 2 % at the full one."""
    found = [
        stationary(
            "gosgd", topology, p=0.4, task=noise(dim=32), workers=8, steps=750, network=network,
            seed=seed, eval_every=2,
        )
        for seed in range(size)
    ]  # fmt: skip
    return float(np.mean(found))


@pytest.mark.extended
@SIZES
@pytest.mark.parametrize("topology", ["complete", "ring"])
def test_noise_of_gosgd_with_rare_pushes(topology: str, size: int) -> None:
    """With a hundred steps between pushes of a worker, the order within a round is negligible."""
    found = stationary(
        "gosgd", topology, p=0.01, task=noise(dim=16), workers=8, steps=2500 * size, eval_every=50
    )
    # At the full size, 5,000 steps are some 25 times as long as the memory of the process.
    assert found == pytest.approx(PUBLISHED[topology, 0.01], rel=0.6 / sqrt(size))


@SIZES
def test_gosgd_contracts_like_sums_of_random_pushes(size: int) -> None:
    """One push of half a weight to one of the n - 1 others, drawn evenly.

    With u_i = w_i (x_i - mean), a push from k to j takes u_k / 2 away and adds it to u_j. The sum
    of all u is 0, so that E sum |u|^2 shrinks by 1 - (1/2 + 1/(n-1)) / n: the potential of Kempe,
    Dobra and Gehrke, FOCS 2003, lemma 2.3, for a single push.
    """
    n, dim, left = 8, 64, []
    shrinks = 1 - (1 / 2 + 1 / (n - 1)) / n
    for seed in range(15 * size):
        rules: list[GoSGD] = []
        points = run_bare(
            consensus(dim=dim), factory(rules), workers=n, topology="complete", steps=66, seed=seed,
            every=33,
        )  # fmt: skip
        start = next(points)
        next(points)
        for rule in rules:
            # Pushes are too rare to overlap, and none is in flight at the end.
            rule.p = 0.0
        end = next(points)
        assert end.weights.sum() == n
        u = end.weights[:, None] * (end.x - start.x.mean(axis=0))
        left.append(np.square(u).sum() / dim / (n - 1) / shrinks**end.reading.traffic.pushes)
    assert np.mean(left) == pytest.approx(1, abs=4 * np.std(left) / sqrt(len(left)))
    assert np.std(left) / sqrt(len(left)) < 0.1 / sqrt(size)


def factory(rules: list[GoSGD]) -> Callable[[], GoSGD]:
    """Return a factory that also appends each rule to *rules*."""

    def make() -> GoSGD:
        rules.append(GoSGD(0.02))
        return rules[-1]

    return make


@SIZES
def test_averages_of_random_pairs_contract_as_published(size: int) -> None:
    """Boyd, Ghosh, Prabhakar and Shah 2006, complete graph: 1 - 1/(n-1) for each pair."""
    n, dim, left = 8, 64, []
    for seed in range(15 * size):
        *_, end = run_bare(
            consensus(dim=dim), lambda: ADPSGD(0.02), workers=n, topology="complete", steps=60,
            seed=seed, every=60,
        )  # fmt: skip
        # Each pair takes a question and an answer.
        pairs = end.reading.traffic.pushes / 2
        left.append(end.disagreement / (n - 1) / (1 - 1 / (n - 1)) ** pairs)
    assert np.mean(left) == pytest.approx(1, abs=4 * np.std(left) / sqrt(len(left)))
    assert np.std(left) / sqrt(len(left)) < 0.1 / sqrt(size)


@pytest.mark.parametrize(
    ("network", "steps"),
    [
        ("ideal", 20),
        pytest.param("lan", 40, marks=pytest.mark.extended),
        pytest.param("wan", 40, marks=pytest.mark.extended),
    ],
)
def test_noise_leaves_no_disagreement_after_an_exact_average(network: str, steps: int) -> None:
    run = simulate(
        rule="allreduce", topology="complete", task=noise(dim=16), workers=8, steps=steps,
        step_s=STEP_S, network=network,
    )  # fmt: skip
    assert np.median(run.series["disagreement"][1:]) < 1e-20
    assert network != "ideal" or run.summary["disagreement_stationary"] < EXACT


LATER = ("path", "star", "torus", "hypercube", "grid", "tree")
FIXED = ["ring", "exponential", *(pytest.param(t, marks=pytest.mark.extended) for t in LATER)]


@pytest.mark.parametrize("n", [8, pytest.param(16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("topology", FIXED)
def test_noise_under_any_fixed_doubly_stochastic_matrix(topology: str, n: int) -> None:
    """V / d = sum over k >= 2 of s_k^2 / (1 - s_k^2) after mixing.

    s are the moduli of the eigenvalues, W being normal (symmetric or circulant) here. With few
    neighbors the process has a long memory, so a path of 16 has the least certain estimate.
    """
    matrix = parse(topology, n).matrix().toarray()
    assert matrix.sum(axis=0) == pytest.approx(1) and matrix.sum(axis=1) == pytest.approx(1)
    assert matrix @ matrix.T == pytest.approx(matrix.T @ matrix)
    squares = np.sort(np.abs(np.linalg.eigvals(matrix)) ** 2)[:-1]
    expected = float((squares / (1 - squares)).sum())
    found = stationary(
        "dpsgd", topology, task=noise(dim=256), workers=n, steps=7 * n + 8, network="ideal",
        eval_every=1,
    )  # fmt: skip
    assert found == pytest.approx(expected, rel=0.1, abs=EXACT)


@pytest.mark.extended
@pytest.mark.parametrize("n", [4, 8, 16])
def test_noise_of_one_peer_exponential(n: int) -> None:
    """A product of j < log2 n successive rounds spreads over 2^j workers evenly: of the noise of
    j rounds ago n / 2^j - 1 is left, and nothing of what is older."""
    expected = sum(n / 2**j - 1 for j in range(1, n.bit_length() - 1))
    found = stationary(
        "dpsgd", "one-peer-exponential", task=noise(dim=256), workers=n, steps=80,
        network="ideal", eval_every=1,
    )  # fmt: skip
    assert found == pytest.approx(expected, rel=0.05)


LATE = NetworkConfig(latency_s=0.8 * STEP_S, jitter=0.5, duplicates=0.1)
"""Shares arrive one to several steps late, and some twice."""


def end_of(
    rule: Callable[[], Rule],
    topology: str,
    network: str | NetworkConfig,
    steps: int = 150,
    **settings: Any,
) -> Point:
    """The last point of a swarm of mixed speeds, when all agree; `Point.x` is relative to the
    initial mean."""
    start, *_, end = run_bare(
        consensus(dim=16), rule, workers=8, topology=topology, network=network, steps=steps,
        pace="lognormal:cv=0.5", speeds="1x:50%,2x:50%", every=steps, **settings,
    )  # fmt: skip
    return replace(end, x=end.x - start.x.mean(axis=0))


@pytest.mark.extended
@pytest.mark.parametrize("network", ["ideal", LATE], ids=["ideal", "late"])
@pytest.mark.parametrize(
    ("topology", "rule"),
    [
        ("star", SGP),
        ("scale-free", SGP),
        ("exponential", SGP),
        # Pushes of half the weight are exact, too.
        ("scale-free", lambda: GoSGD(0.8)),
        ("exponential", lambda: GoSGD(0.8)),
    ],
)
def test_push_sum_is_exact_under_delay_and_on_any_graph(
    topology: str, rule: Callable[[], Rule], network: str | NetworkConfig
) -> None:
    """Kempe, Dobra and Gehrke, FOCS 2003, and Assran et al., ICML 2019."""
    end = end_of(rule, topology, network)
    assert end.reading.traffic.refusals == 0
    assert np.abs(end.x).max() < 1e-4


def test_the_weight_of_a_returned_share_keeps_newer_values() -> None:
    """If messages are lost, all workers agree, but on a mean that has moved a little."""
    end = end_of(SGP, "exponential", "lossy")
    assert end.reading.traffic.refusals > 0
    assert np.abs(end.x - end.x.mean(axis=0)).max() < 1e-6
    assert 1e-6 < np.abs(end.x).max() < 0.3


def weights_of(emission: str, p: float, size: int) -> tuple[float, float]:
    """Mean weight over time of slow workers, and of workers four times as fast."""
    rule: Any = lambda: GoSGD(p, emission=emission)  # type: ignore[arg-type]  # noqa: E731
    given: dict[str, Any] = {"workers": 16, "topology": "complete", "speeds": "1x:50%,4x:50%"}
    *points, end = run_bare(
        consensus(dim=1), rule, **given, network="lan", steps=1000 * size, every=8
    )
    slow = end.reading.steps < end.reading.steps.mean()
    assert slow.sum() == 8
    mean = np.mean([point.weights for point in points[len(points) // 10 :]], axis=0)
    return float(mean[slow].mean()), float(mean[~slow].mean())


@pytest.mark.extended
@SIZES
@pytest.mark.parametrize(
    ("emission", "p", "ratio"), [("per-step", 0.05, 4), ("per-second", 0.05 / STEP_S, 1)]
)
def test_the_stationary_weight_is_inversely_proportional_to_pushes(
    emission: str, p: float, ratio: float, size: int
) -> None:
    """In equilibrium each worker sends as much weight as it gets: all w_i r_i p / 2 are equal."""
    slow, fast = weights_of(emission, p, size)
    assert slow / fast == pytest.approx(ratio, rel=0.2 / sqrt(size))
    # The rest is in flight.
    assert (slow + fast) / 2 == pytest.approx(1, abs=0.05)


@pytest.mark.extended
def test_two_sided_averages_do_not_change_the_mean() -> None:
    """Lian, Zhang, Zhang and Liu, ICML 2018: one worker gains what the other loses."""
    start, *_, end = run_bare(
        consensus(dim=8), ADPSGD, workers=9, topology="ring", network="lan", steps=400, every=400
    )
    assert np.abs(end.x - start.x.mean(axis=0)).max() < 1e-6
