"""Equal settings give equal bits, and the simplest settings equal plain training."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rumor.gossip import TrainingError
from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.sim import Run, simulate
from rumor.sim.batched.vector_tasks import consensus
from rumor.train.tasks.data import Sampler
from rumor.train.tasks.registry import load_task
from rumor.train.tasks.task import Task

from ...rules import (
    CUTTING,
    IN_MEMORY,
    NOT_PLAIN_ALONE,
    PLAIN_SGD,
    fitting,
    vectors_of,
)

SETTINGS: dict[str, Any] = {
    "task": "digits",
    "workers": 6,
    "topology": "exponential",
    "steps": 5,
    "batch_size": 4,
    "pace": "lognormal:cv=0.5",
    "latency_s": 0.03,
    "eval_every": 3,
    "engine": "loop",
    "seed": 4,
}

OF_RULES: dict[str, dict[str, Any]] = {rule: fitting(rule) for rule in RULES}
OF_RULES["gosgd"]["p"] = 0.7
OF_RULES["hybrid"]["topology"] = "hosts:sizes=3x3"
"""Settings of each rule, so that there is much to mix."""

OFTEN = {"p": 0.8, "steps": 6}
CASES: dict[str, dict[str, Any]] = OF_RULES | {
    "bfloat16": OFTEN | {"wire": "bfloat16"},
    "float16": OFTEN | {"wire": "float16"},
    "int8": OFTEN | {"wire": "int8"},
    "topk:0.05": OFTEN | {"wire": "topk:0.05"},
    "shards": OFTEN | {"shards": 8},
    "some shards": OFTEN | {"shards": 8, "shards_per_push": 3},
    "all shards": {"shards": 5, "shards_per_push": 5, "rule": "sgp"},
    "int8 shards": OFTEN | {"shards": 4, "shards_per_push": 2, "wire": "int8"},
    "topk shards": OFTEN | {"shards": 4, "wire": "topk:0.05"},
    "pairs": {"rule": "adpsgd", "wire": "int8"},
    "tree": {"rule": "relaysgd", "wire": "int8", "topology": "tree"},
    "rounds": {"rule": "sparseloco:h=3", "wire": "topk2bit:0.1", "steps": 6},
    "differences, int8": {"rule": "choco", "wire": "int8", "topology": "ring"},
    "differences, topk": {"rule": "choco", "wire": "topk:0.05", "topology": "ring"},
    "clipped": {"rule": "gosgd:p=0.7,robust=clip:tau=0.05", "steps": 8},
}


@pytest.fixture(scope="module")
def plain() -> dict[str, Run]:
    """The reference run of each case."""
    return {name: simulate(**SETTINGS | case) for name, case in CASES.items()}


@pytest.mark.extended
@pytest.mark.parametrize("change", [{"window": 1}, {"threads": 2, "window": 7}], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_window_and_threads_change_no_bit(
    case: str, change: dict[str, Any], plain: dict[str, Run]
) -> None:
    check_same(simulate(**SETTINGS | CASES[case] | change), plain[case])


@pytest.mark.extended
@pytest.mark.parametrize("rule", RULES)
def test_the_grouping_of_steps_changes_no_bit(rule: str) -> None:
    settings = SETTINGS | OF_RULES[rule] | {"engine": "dense"}
    check_same(simulate(**settings, threads=2, window=11), simulate(**settings, threads=1))


def check_same(run: Run, other: Run) -> None:
    for name in ("digest", "model_digest"):
        assert run.summary[name] == other.summary[name]
    assert run.model is not None and other.model is not None
    for name, tensor in other.model.items():
        assert torch.equal(run.model[name], tensor)


@pytest.mark.extended
def test_other_settings_give_another_digest(plain: dict[str, Run]) -> None:
    changes: list[dict[str, Any]] = [{"seed": 5}, {"lr": 0.09}, {"latency_s": 0.3}]
    settings = SETTINGS | CASES["gosgd"]
    digests = {simulate(**settings | change).summary["digest"] for change in changes}
    digests |= {run.summary["digest"] for run in plain.values()}
    assert len(digests) == len(changes) + len(CASES)


@pytest.mark.extended
@pytest.mark.parametrize("task", ["consensus", "noise"])
@pytest.mark.parametrize("rule", RULES)
def test_vectors_are_the_same_for_any_window(rule: str, task: str) -> None:
    settings = SETTINGS | OF_RULES[rule] | {"steps": 20, "batch_size": None}
    settings["task"] = vectors_of(task, rule)
    digests = {simulate(**settings, window=window).summary["digest"] for window in (1, 7, None)}
    assert len(digests) == 1


MEASURED: dict[str, dict[str, Any]] = {
    "digits": {},
    "int8 in shards": {"wire": "int8", "shards": 3},
    "faults": {"faults": [{"kind": "crash", "peer": 1, "at_s": 0.3}]},
    "vectors": {"task": "consensus", "batch_size": None},
    "vectors in shards": {"task": vectors_of("noise", "sparta"), "batch_size": None, "shards": 2},
}


@pytest.mark.extended
@pytest.mark.parametrize("case", MEASURED)
def test_measured_shares_within_the_bound_are_mixed_as_usual(case: str) -> None:
    """Values are computed while rules decide; if nothing is clipped, that changes no bit."""
    settings = SETTINGS | {"steps": 12} | MEASURED[case]
    plain = simulate(**settings, rule="gosgd:p=0.7").summary
    bounded = simulate(**settings, rule="gosgd:p=0.7,robust=clip:tau=1e30").summary
    clipped = simulate(**settings, rule="gosgd:p=0.7,robust=clip:tau=0.05").summary
    same = ("digest", "model_digest", "messages", "mixed", "weight_units_in_flight")
    assert [plain[name] for name in same] == [bounded[name] for name in same]
    assert clipped["digest"] != plain["digest"]
    assert case == "faults" or clipped["weight_units_total"] == plain["weight_units_total"]


def test_all_reduce_with_two_levels_agrees_with_one_level() -> None:
    settings = SETTINGS | {"topology": "hosts:sizes=4x2", "engine": "dense"}
    flat = simulate(**settings, rule="allreduce").summary
    deep = simulate(**settings, rule="allreduce:levels=2").summary
    assert flat["consensus_distance"] == deep["consensus_distance"] == 0
    assert deep["loss"] == pytest.approx(flat["loss"], rel=1e-5)
    # One level of 6 peers: 2 shares to and 2 from the inner 4, which swap 4 * 2. Two: 4 + 4 + 2.
    assert (flat["mixed"], deep["mixed"]) == (5 * 12, 5 * 10)


def trained_by_hand(task: Task, names: list[str], steps: int, seed: int) -> dict[str, Tensor]:
    """Plain training: each step on the batches of all *names* together."""
    torch.manual_seed(seed)
    model = task.model()
    optimizer = task.optimizer(model.parameters(), task.lr)
    inputs, targets = task.train
    everything = np.arange(len(inputs))
    samplers = [Sampler(everything, task.batch_size, seed=seed, peer=name) for name in names]
    assert task.loss is not None
    for step in range(steps):
        chosen = np.concatenate([sampler.batch(step) for sampler in samplers])
        optimizer.zero_grad()
        task.loss(model(inputs[chosen]), targets[chosen]).backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.extended
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in NOT_PLAIN_ALONE])
def test_one_worker_is_plain_training_to_the_last_bit(rule: str) -> None:
    task = load_task("digits", seed=3).trained_with(momentum=0.0 if rule in PLAIN_SGD else None)
    run = simulate(task=task, workers=1, rule=rule, steps=30, seed=3)
    by_hand = trained_by_hand(task, ["peer-0"], 30, seed=3)
    assert run.model is not None and run.model.keys() == by_hand.keys()
    assert all(torch.equal(run.model[name], tensor) for name, tensor in by_hand.items())


@pytest.mark.parametrize("task", ["digits", "quadratic"])
@pytest.mark.parametrize(
    "n",
    [5, pytest.param(2, marks=pytest.mark.extended), pytest.param(8, marks=pytest.mark.extended)],
)
def test_an_average_of_all_workers_equals_training_on_larger_batches(n: int, task: str) -> None:
    """At equal speeds and without latency, momentum included."""
    run = simulate(
        task=task, workers=n, rule="allreduce", network="ideal", steps=20, seed=3, engine="loop"
    )
    names = [f"peer-{index}" for index in range(n)]
    by_hand = trained_by_hand(load_task(task, seed=3), names, 20, seed=3)
    assert run.model is not None
    for name, tensor in by_hand.items():
        torch.testing.assert_close(run.model[name], tensor, rtol=1e-4, atol=1e-5)
    assert run.summary["consensus_distance"] == 0
    assert run.summary["idle"] == 0


UNCUT = [
    rule for rule in RULES if not requirements_of(make_rule(rule)).whole and rule not in CUTTING
]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("rule", "cut"),
    [
        *((rule, {"seed": seed}) for rule in RULES for seed in range(2)),
        *(
            (rule, {"shards": 5, "shards_per_push": per_push, "wire": wire})
            for rule in UNCUT
            for per_push in (1, 3, 5)
            for wire in ("float32", "int8")
        ),
    ],
    ids=str,
)
def test_no_unit_of_weight_is_lost_or_created(rule: str, cut: dict[str, Any]) -> None:
    """On a network that loses, duplicates and reorders messages."""
    task = consensus(dim=40) if "shards" in cut else vectors_of("consensus", rule)
    settings: dict[str, Any] = {
        "task": task,
        "workers": 10,
        "topology": "random-regular:d=4",
        "steps": 30,
        "pace": "pareto:shape=1.8",
        "speeds": "1x:50%,4x:50%",
        "network": "lossy",
        "duplicates": 0.2,
    }
    run = simulate(**settings | fitting(rule) | cut)
    summary = run.summary
    whole = 10 * summary["shards"] * 2**40
    assert summary["weight_units_total"] == summary["weight_units_expected"] == whole
    assert summary["weight_total"] == summary["weight_expected"] == 10
    assert summary["weight_units_burned"] == 0
    held = int(run.workers["weight_units"].sum())
    assert 0 < held <= whole - summary["weight_units_in_flight"]
    assert (summary["mixed"] + summary["pushes"] > 0) == (rule not in IN_MEMORY)
    assert summary["mixed"] > 10 or "shards" not in cut


@pytest.mark.parametrize("engine", ["loop", "dense"])
@pytest.mark.parametrize("workers", [1, 4])
def test_a_learning_rate_that_is_far_too_high_is_an_error(workers: int, engine: str) -> None:
    with pytest.raises(TrainingError, match=r"peer-. diverged .*: .* learning rate \(1e\+30\)"):
        simulate(task="digits", workers=workers, steps=10, lr=1e30, engine=engine)


def test_a_worker_that_diverges_while_the_cost_is_estimated_ends_the_run_by_name() -> None:
    rule, progress = "gosgd:p=1,robust=nna", list[Any]().append
    with pytest.raises(TrainingError, match=r"peer-. diverged at its step 2: "):
        simulate(
            task="digits", workers=6, steps=50, lr=1e30, rule=rule, eval_every=50, progress=progress
        )


POISONED = 3


def poisoned() -> Task:
    """Least squares in 8 parts; one sample of the fourth diverges at any learning rate."""
    rng = np.random.default_rng(1)
    inputs = torch.from_numpy(rng.standard_normal((160, 4)).astype(np.float32))
    targets = torch.arange(160, dtype=torch.float32)[:, None] / 160
    inputs[POISONED * 20 + 5] = 1e30
    sides: Any = {"train": (inputs, targets), "test": (inputs[:40], targets[:40])}
    given: dict[str, Any] = {"lr": 0.01, "batch_size": 4, "steps": 40, "loss": functional.mse_loss}
    return Task(name="poisoned", model=lambda: nn.Linear(4, 1), **sides, **given)


@pytest.mark.extended
@pytest.mark.parametrize(
    "change", [{}, {"window": 3}, {"engine": "dense"}, {"threads": 2}], ids=str
)
def test_a_worker_that_diverges_ends_the_run_by_name(change: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"task": poisoned(), "workers": 8, "partition": "shards:1"}
    with pytest.raises(TrainingError, match=r"peer-. diverged at its step [1-5]: "):
        simulate(**settings | {"p": 0.8, "engine": "loop"} | change)
