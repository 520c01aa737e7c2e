"""`Swarm` runs live peers in one process: faults lose no weight and are recorded as events."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rumor.gossip import ConfigError, GoSGD, ProtocolConfig, RuleContext, TrainingError
from rumor.gossip.effects.effects import Wait
from rumor.gossip.effects.events import Founded, Joined, ShareMixed
from rumor.gossip.types import stream
from rumor.gossip.weight import ONE, UNIT
from rumor.sim import NetworkConfig, Swarm
from rumor.sim.testing import Incident
from rumor.train.tasks.task import Task, sgd

from ..faults import fault
from .batched.test_exactness import trained_by_hand
from .test_simulate import tiny

EXAMPLE = Path(__file__).parents[2] / "examples" / "test_my_task.py"

# A network in which most things go wrong now and then, and answers come soon.
BAD = NetworkConfig(latency_s=0.002, jitter=0.5, loss=0.1, duplicates=0.05, reorder=0.05)

# Deaths are found in seconds, so that a test need not simulate a minute.
QUICK = ProtocolConfig(
    gossip_s=0.5, dead_s=3.0, found_s=1.5, roll_s=3.0, query_s_max=1.0, merge_rounds=20
)


def wide(**changes: Any) -> Task:
    """Least squares of double precision in as many dimensions as fill some cache lines."""
    rng = stream(0, "test", "wide")
    inputs = torch.from_numpy(rng.normal(size=(200, 60)) / 4)
    pair = inputs, inputs.sum(dim=1, keepdim=True)
    model = {"model": lambda: nn.Linear(60, 1, bias=False).double()}
    return tiny(**{"name": "wide", "train": pair, "test": pair, "lr": 0.2} | model | changes)


def blobs() -> Task:
    """Two clouds of points, and a model with batch statistics."""
    rng = stream(0, "test", "blobs")
    labels = np.arange(80) % 2
    inputs = rng.normal(size=(80, 2)) + 4.0 * labels[:, None]
    pair = torch.from_numpy(inputs).float(), torch.from_numpy(labels)
    return tiny(
        name="blobs",
        train=pair,
        test=pair,
        loss=functional.cross_entropy,
        model=lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.1), nn.Linear(2, 2)),
        accuracy=lambda outputs, labels: (outputs.argmax(1) == labels).double().mean().item(),
    )


def swarm_of(peers: int = 4, task: Task | None = None, **settings: Any) -> Swarm:
    given: dict[str, Any] = {"p": 0.5, "network": BAD, "protocol": QUICK} | settings
    if not isinstance(given.get("rule", ""), str) or given.get("rule") in ("dpsgd", "allreduce"):
        del given["p"]
    return Swarm(task or tiny(), peers=peers, **given)


def events_of(swarm: Swarm, kind: type[Any]) -> list[Any]:
    """Events of a kind, in order."""
    return [happening.event for happening in swarm.events if isinstance(happening.event, kind)]


def incidents(swarm: Swarm, what: str) -> list[str]:
    """Details of a kind of incident, in order."""
    return [incident.detail for incident in events_of(swarm, Incident) if incident.what == what]


def all_know(swarm: Swarm, *ids: str) -> Callable[[], bool]:
    """Return a check that each of these peers considers exactly these peers alive."""
    return lambda: all(swarm.live(id) == tuple(sorted(ids)) for id in ids)


def assert_agreed(swarm: Swarm) -> None:
    """Assert that all peers finish, with one model and all the weight."""
    assert swarm.finish(), swarm.events[-20:]
    audit = swarm.audit()
    assert audit.balanced
    assert audit.in_flight == audit.stranded == 0
    assert swarm.consensus_distance() < 0.02


# Training


def test_a_swarm_of_one_is_plain_sgd_to_the_last_bit() -> None:
    task = tiny()
    swarm = Swarm(task, peers=1, seed=3)
    swarm.run(2.05)

    assert swarm.steps("peer-0") == 20
    own = swarm.model("peer-0").state_dict()
    by_hand = trained_by_hand(task, ["peer-0"], 20, seed=3)
    assert all(torch.equal(own[name], value) for name, value in by_hand.items())
    assert swarm.weights() == {"peer-0": 1.0}
    assert swarm.finish() and swarm.consensus_distance() == 0.0


def test_peers_train_and_agree_in_a_network_that_loses_messages() -> None:
    swarm = swarm_of(4, topology="ring")
    swarm.run(8.0)
    assert swarm.loss() < 0.05
    assert len(events_of(swarm, ShareMixed)) > 25
    assert_agreed(swarm)
    assert sum(swarm.weights().values()) == 4.0
    swarm.run(6.0)
    assert swarm.running == () and len(incidents(swarm, "closed")) == 4
    assert swarm.loss() < 0.05


def test_parameters_and_buffers_are_merged_and_measured() -> None:
    swarm = swarm_of(3, blobs())
    swarm.run_until(lambda: swarm.accuracy() == 1.0)
    assert swarm.accuracy("peer-1") > 0.9
    assert swarm.loss("peer-1") == pytest.approx(swarm.loss(), rel=0.5)
    merged, heaviest = swarm.merged(), max(swarm.weights().items(), key=lambda item: item[1])[0]
    counted = swarm.model(heaviest).state_dict()["0.num_batches_tracked"]
    assert torch.equal(merged["0.num_batches_tracked"], counted)
    weights, models = swarm.weights(), {id: swarm.model(id).state_dict() for id in swarm.peers}
    mean = sum(models[id]["2.bias"].double() * weight for id, weight in weights.items())
    assert torch.allclose(merged["2.bias"].double(), mean / sum(weights.values()), atol=1e-6)


def test_step_times_vary_and_a_straggler_takes_fewer_steps() -> None:
    slowed = fault(0.0, "slow", 2, factor=5.0)
    swarm = swarm_of(3, pace="lognormal:cv=0.5", network="lan", faults=[slowed])
    swarm.run(7.0)
    first, second, third = map(swarm.steps, swarm.peers)
    assert first != second and third < 0.3 * first


# Determinism

RUN = """
from rumor.sim import Swarm

split = {"at_s": 3.0, "kind": "partition", "groups": [[0, 2], [1, 3]], "for_s": 1.0}
swarm = Swarm("quadratic", peers=4, network="lossy", p=0.5, seed=SEED, faults=[split])
swarm.at(2.0, lambda: swarm.crash("peer-1"))
swarm.at(3.0, lambda: swarm.restart("peer-1"))
swarm.join()
swarm.run(6.0)
"""


def digest(seed: int) -> str:
    scope: dict[str, Any] = {"SEED": seed}
    exec(RUN, scope)
    return scope["swarm"].digest  # type: ignore[no-any-return]


# Faults


def test_a_newcomer_starts_from_a_copy_and_is_found_by_all() -> None:
    swarm = swarm_of(3, blobs())
    swarm.run(5.0)
    before = swarm.loss()
    name = swarm.join()
    swarm.run_until(lambda: bool(events_of(swarm, Joined)))
    assert swarm.loss(name) < 1.5 * before
    counted = swarm.model(name).state_dict()["0.num_batches_tracked"]
    assert counted > 20 > swarm.steps(name)
    swarm.run_until(all_know(swarm, "join-1", "peer-0", "peer-1", "peer-2"))
    assert_agreed(swarm)
    assert swarm.audit().founded == 3 * ONE


def test_one_newcomer_too_many_is_refused() -> None:
    swarm = swarm_of(2, newcomers=1, network="lan")
    assert swarm.join() == "join-1"
    with pytest.raises(ConfigError, match="one newcomer too many"):
        swarm.join()


@pytest.mark.extended
def test_a_list_of_faults_is_applied_as_in_simulations(tmp_path: Path) -> None:
    faults = [
        fault(2.0, "crash", 1),
        fault(3.0, "restart", "peer-1"),
        fault(4.5, "join"),
        fault(4.0, "partition", groups=[["peer-0"], ["peer-1", "peer-2"]], for_s=1),
        fault(5.0, "leave", 2),
    ]
    file = tmp_path / "faults.json"
    file.write_text(json.dumps(faults))
    given: dict[str, Any] = {"protocol": replace(QUICK, wire="int8"), "shards": 2}
    swarm = swarm_of(3, wide(), faults=file, checkpoint_every_s=0.5, **given)
    swarm.run(2.5)
    assert list(swarm.running) == ["peer-0", "peer-2"]
    assert len(incidents(swarm, "crashed")) == 1
    before = swarm.steps("peer-1")
    swarm.run(0.6)
    # It lost only the steps after its last checkpoint.
    assert before - 8 < swarm.steps("peer-1") < before
    assert incidents(swarm, "started")[-1] == "incarnation 2"
    swarm.run(20.0)
    assert list(swarm.running) == ["join-1", "peer-0", "peer-1"]
    assert_agreed(swarm)
    assert sum(swarm.weights().values()) == swarm.audit().held / (2 * ONE)
    assert swarm_of(3, faults=faults).digest == swarm_of(3, faults=faults).digest


# Rules


@pytest.mark.parametrize("rule", ["allreduce", "dpsgd"])
def test_a_synchronous_rule_waits_in_virtual_time(rule: str) -> None:
    swarm = swarm_of(3, rule=rule, network="wan", faults=[fault(0.0, "slow", 2, factor=4.0)])
    swarm.run(5.0)
    steps = [swarm.steps(id) for id in swarm.peers]
    assert max(steps) - min(steps) <= 1 and 8 <= min(steps) <= 12
    assert swarm.finish()
    assert len({swarm.steps(id) for id in swarm.peers}) == 1
    assert swarm.consensus_distance() < (1e-6 if rule == "allreduce" else 0.1)


class Forger(GoSGD):
    """A rule that makes weight out of nothing."""

    def step(self, turn: RuleContext) -> Wait | None:
        """Push and mix as usual, and forge weight at step 5."""
        if turn.step == 5:
            turn._state.log.account.weight += UNIT
        return super().step(turn)


def test_weight_created_by_a_custom_rule_is_an_error() -> None:
    swarm = swarm_of(2, rule=lambda: Forger(0.5), network="ideal")
    with pytest.raises(AssertionError, match=r"at 5 s weight is not conserved"):
        swarm.run(5.0)


# Failures of a training loop


def test_a_peer_with_a_non_finite_loss_leaves_and_burns_its_weight() -> None:
    task = tiny()
    inputs, targets = task.train
    inputs, targets = inputs.clone(), targets.sort(dim=0).values
    inputs[-1] = float("nan")
    # The data are sorted by target and cut in three, so the last peer has the bad sample.
    spoilt = replace(task, train=(inputs, targets), batch_size=32)
    swarm = swarm_of(3, spoilt, partition="shards:1")
    swarm.run(5.0)
    (reason,) = incidents(swarm, "failed")
    assert reason == "loss or parameters are not finite after step 1: lower the lr"
    (broken,) = {h.peer for h in swarm.events if h.event == Incident("failed", reason)}
    assert swarm.audit().burned == ONE
    assert broken not in swarm.weights() and np.isfinite(swarm.loss())
    assert_agreed(swarm)


def test_a_peer_leaves_if_its_parameters_overflow_the_wire() -> None:
    def large(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.mse_loss(outputs, targets) + outputs.mean() * 1e7

    protocol = replace(QUICK, wire="float16")
    swarm = swarm_of(2, tiny(loss=large, lr=0.1), protocol=protocol, network="lan")
    swarm.run(30.0)
    assert {*incidents(swarm, "failed")} == {"a parameter does not fit the format of shares"}
    # The last peer has no peer to push to.
    assert len(swarm.running) == 1 and swarm.audit().burned > 0
    assert all(torch.isfinite(p).all() for id in swarm.peers for p in swarm.model(id).parameters())


def test_an_error_in_user_code_is_raised() -> None:
    def fail(outputs: Tensor, targets: Tensor) -> Tensor:
        raise RuntimeError("a bug of the user's")

    with pytest.raises(TrainingError, match=r"RuntimeError: a bug of the user's\nat .*test_te"):
        swarm_of(2, tiny(loss=fail)).run(5.0)


def test_a_model_with_nothing_to_share_is_an_error() -> None:
    optimizer = lambda parameters, lr: sgd([nn.Parameter(torch.zeros(1))], lr)  # noqa: E731
    with pytest.raises(TrainingError):
        Swarm(tiny(model=nn.ReLU, optimizer=optimizer))


# Events


def test_events_are_ordered_and_readable() -> None:
    swarm = swarm_of(2, network="lan", faults=[fault(3.0, "pause", 1, for_s=0.5)])
    swarm.run(3.0)
    assert len(events_of(swarm, Founded)) == 2 and events_of(swarm, ShareMixed)
    swarm.leave("peer-1")
    swarm.run_until(lambda: swarm.running == ("peer-0",))
    assert swarm.weights() == {"peer-0": 2.0}
    times_s = [happening.time_s for happening in swarm.events]
    assert times_s == sorted(times_s) and times_s[-1] <= swarm.now
    assert str(swarm.events[0]).startswith("     0.000 s  peer-0  Incident(what='started', ")


def test_a_timeout_reports_the_state_of_every_peer() -> None:
    swarm = swarm_of(2)
    swarm.at(1.0, lambda: swarm.crash("peer-1"))
    with pytest.raises(TimeoutError, match=r"after 2 virtual seconds; .*peer-1 \(crashed at 1 s"):
        swarm.run_until(lambda: False, timeout_s=2.0, every_s=0.5)
    assert swarm.now == 2.0
    assert not swarm_of(2, network="wan").finish(timeout_s=0.0)


# Misuse

MISUSES: list[tuple[Callable[[Swarm], object], str]] = [
    (lambda s: s.crash("nobody"), "no peer 'nobody': it must be one of peer-0, peer-1"),
    (lambda s: s.crash("peer-1"), "'peer-1' does not run, it crashed at 1 s; running: peer-0"),
    (lambda s: s.restart("peer-0"), "'peer-0' still runs"),
    (lambda s: s.accuracy(), "'tiny' measures no accuracy"),
    (lambda s: s.loss("nobody"), "no peer 'nobody'"),
    (lambda s: s.run(float("nan")), "duration_s is nan"),
    (lambda s: s.at(0.5, lambda: None), "time_s is 0.5: it must be 1 or more"),
]


@pytest.fixture(scope="module")
def misused() -> Swarm:
    """A swarm that serves for all misuses, since none of them changes it."""
    swarm = swarm_of(2)
    swarm.run(1.0)
    swarm.crash("peer-1")
    return swarm


@pytest.mark.parametrize(("misuse", "message"), MISUSES)
def test_misuse_is_refused_and_changes_nothing(
    misused: Swarm, misuse: Callable[[Swarm], object], message: str
) -> None:
    before = misused.digest
    with pytest.raises(ConfigError, match=message):
        misuse(misused)
    assert misused.digest == before and misused.peers == ("peer-0", "peer-1")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peers": 0}, "peers is 0"),
        ({"peers": []}, r"peers is \[\]"),
        ({"peers": "ann"}, "a number of at least 1, or a list of different names"),
        ({"peers": ["ann", "ann"]}, "different names"),
        ({"peers": ["ann", "b/c"]}, "different names"),
        ({"rule": GoSGD(0.5)}, "each peer needs a rule of its own"),
        ({"rule": GoSGD, "p": 0.5}, "p is 0.5: each peer needs"),
    ],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"task": tiny(), "peers": 3} | settings
    with pytest.raises(ConfigError, match=message):
        Swarm(**given)


def test_a_run_within_a_run_is_refused() -> None:
    swarm = swarm_of(1)
    swarm.at(1.0, lambda: swarm.run(1.0))
    with pytest.raises(ConfigError, match="time is passing already"):
        swarm.run(2.0)
    swarm.run(1.0)


@pytest.mark.extended
@pytest.mark.skipif(not EXAMPLE.exists(), reason="the examples are not next to the tests")
def test_the_example_of_user_tests_passes() -> None:
    tests = [value for name, value in run_path(str(EXAMPLE)).items() if name.startswith("test_")]
    assert len(tests) >= 3
    for test in tests:
        test()
