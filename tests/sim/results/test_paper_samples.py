"""Rules that average weigh models by the samples of their steps: against the mean in numpy."""

from collections.abc import Callable

import numpy as np
import pytest

from rumor.gossip import ConfigError, Rule
from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.outer.local_sgd import LocalSGD
from rumor.gossip.rules.registry import make_rule, spec_of
from rumor.gossip.rules.synchronous.allreduce import AllReduce
from rumor.sim import simulate
from rumor.sim.batched.vector_tasks import consensus

from ..bare import Floats, run_bare

SAMPLES = (16, 128, 32, 8, 200, 32, 1)


def end_of(rule: Callable[[], Rule], samples: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Vectors at the start, and after some rounds in which no step moves anything."""
    start, *_, end = run_bare(
        consensus(dim=5), rule, workers=7, topology="complete", steps=6, every=6, samples=samples
    )
    return start.x, end.x


@pytest.mark.parametrize(
    "rule", [lambda: AllReduce(samples=32), lambda: LocalSGD(h=2, by_samples=True)]
)
def test_the_mean_is_weighted_by_samples_and_the_same_at_all(rule: Callable[[], Rule]) -> None:
    x, end = end_of(rule, SAMPLES)
    assert (end == end[0]).all()
    np.testing.assert_allclose(end[0], np.average(x, axis=0, weights=SAMPLES), rtol=1e-6)


@pytest.mark.parametrize(
    ("weighs", "plain"),
    [
        (lambda: AllReduce(samples=32), AllReduce),
        (lambda: LocalSGD(h=2, by_samples=True), lambda: LocalSGD(h=2)),
    ],
)
def test_where_all_take_as_many_no_bit_is_another(
    weighs: Callable[[], Rule], plain: Callable[[], Rule]
) -> None:
    for samples in ((32,) * 7, ()):
        assert (end_of(weighs, samples)[1] == end_of(plain, ())[1]).all()


def test_a_lone_worker_goes_on_from_its_own() -> None:
    start, *_, end = run_bare(
        consensus(dim=2),
        lambda: LocalSGD(h=1, by_samples=True),
        workers=1,
        topology="complete",
        steps=3,
        samples=(8,),
    )
    assert (start.x == end.x).all()


def test_a_rule_says_in_its_requirements_and_its_spec_whether_it_weighs() -> None:
    for spec in ("allreduce:samples=32", "local-sgd:by_samples=true", "gosgd:samples=32"):
        rule = make_rule(spec)
        assert requirements_of(rule).by_samples and spec_of(rule) == spec
        assert not requirements_of(make_rule(spec.partition(":")[0])).by_samples
    with pytest.raises(ConfigError, match="samples is -1"):
        AllReduce(samples=-1)


def digest_of(rule: str, *sizes: str) -> str:
    run = simulate(
        task="digits", workers=3, steps=4, topology="complete", rule=rule, batch_sizes=sizes
    )
    return str(run.summary["digest"])


def test_a_simulation_takes_the_sizes_of_batches_for_samples() -> None:
    alike, uneven = digest_of("allreduce"), digest_of("allreduce", "1:96", "2:8")
    assert digest_of("allreduce:samples=32") == alike
    weighed = digest_of("allreduce:samples=32", "1:96", "2:8")
    assert len({alike, uneven, weighed}) == 3
