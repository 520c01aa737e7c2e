"""`simulate` as a user calls it: its results, and the settings that it refuses."""

import math
import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import ConcatDataset, Dataset, TensorDataset

from rumor.gossip import ConfigError, TrainingError
from rumor.sim import Swarm, simulate
from rumor.sim.batched.schedule import Progress
from rumor.sim.batched.vector_tasks import consensus
from rumor.sim.storm import draw_storm
from rumor.train.tasks.task import Task, fraction_right

from ..faults import fault


def tiny(**changes: Any) -> Task:
    """A line through noise: a step takes a moment."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 3, generator=generator)
    pair = inputs, inputs @ torch.tensor([[1.0], [-2.0], [0.5]])
    settings: dict[str, Any] = {
        "name": "tiny",
        "model": lambda: nn.Linear(3, 1),
        "train": pair,
        "test": pair,
        "loss": functional.mse_loss,
        "lr": 0.05,
        "batch_size": 8,
        "steps": 40,
    }
    return Task(**settings | changes)


def test_a_swarm_learns_and_its_figures_add_up() -> None:
    run = simulate(task=tiny(), workers=6, topology="ring", p=0.5, seed=3)
    summary, series = run.summary, run.series
    assert summary["loss"] < 0.01 * series["loss"][0]
    assert summary["steps"] == 6 * 40 == run.workers["steps"].sum()
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 6 * 2**40
    assert summary["pushes"] == run.workers["pushes"].sum() == series["pushes"][-1]
    assert summary["mixed"] == run.workers["mixed"].sum()
    assert summary["virtual_time_s"] == pytest.approx(4.0)
    assert summary["idle"] == 0.0
    assert (summary["task"], summary["workers"], summary["rule"]) == ("tiny", 6, "gosgd")
    assert (summary["engine"], summary["engine_why"]) == ("dense", "a multilayer perceptron")
    assert run.model is not None and set(run.model) == {"weight", "bias"}


def test_curves_begin_before_the_first_step_and_end_with_the_last() -> None:
    series = simulate(task=tiny(), workers=2, topology="ring", eval_every=10).series
    assert series["time_s"].tolist() == pytest.approx([0.0, 1.05, 2.05, 3.05, 4.0])
    assert series["steps"].tolist() == [0, 10, 20, 30, 40]
    assert np.isnan(series["staleness_steps"][0])
    assert series["weight_quantiles"].shape == (5, 5)
    assert (np.diff(series["bytes_sent"]) >= 0).all()


def test_a_run_stops_at_the_requested_virtual_time() -> None:
    run = simulate(task=tiny(), workers=2, topology="ring", time_s=1.55, slow=("1:5",))
    assert run.summary["virtual_time_s"] == 1.55
    assert run.workers["steps"].tolist() == [15, 3]


@pytest.mark.extended
@pytest.mark.parametrize("decide", ["protocol", "compiled"])
def test_a_share_from_a_peer_that_is_ahead_is_not_stale(decide: str) -> None:
    run = simulate(task=tiny(), workers=4, p=0.5, speeds="1x:75%,8x:25%", decide=decide)
    stale = run.series["staleness_steps"]
    # Most shares come from the fast worker; the shares that it mixes are far behind.
    assert np.nanmin(stale) >= 0 and 1 < run.summary["staleness_steps"] < 40


def test_progress_is_reported_within_a_window_and_changes_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, Any] = {"task": tiny(), "workers": 4, "eval_every": 40, "p": 0.5}
    reports: list[Progress] = []
    quiet = simulate(**settings, progress=reports.append)
    assert [one.steps for one in reports][:2] == [0, 0], "two reports before the first step"
    monkeypatch.setattr(sys.modules["rumor.sim.simulate"], "_REPORT_S", 0.0)
    frequent: list[Progress] = []
    run = simulate(**settings, progress=frequent.append)
    assert run.summary["digest"] == quiet.summary["digest"]
    steps, times = [one.steps for one in frequent], [one.time_s for one in frequent]
    assert steps == sorted(steps) and steps[-1] == 160 and times == sorted(times)
    assert len(set(steps)) >= 20 > len(reports)


def test_workers_agree_on_the_mean_of_their_vectors() -> None:
    values = np.arange(12.0).reshape(4, 3)
    run = simulate(task=consensus(values), workers=4, topology="complete", p=1.0, steps=60)
    assert run.model is None
    assert run.summary["loss"] is None and run.summary["accuracy"] is None
    first, last = run.series["disagreement"][[0, -1]]
    # The sum over workers of the squared distance from (4.5, 5.5, 6.5), per coordinate.
    assert first == pytest.approx(45.0)
    assert last < 1e-12


BAD: list[tuple[dict[str, Any], str]] = [
    ({"workers": 0}, "workers is 0: it must be an integer of at least 1"),
    ({"loss": 1.5}, "loss is 1.5"),
    ({"network": "moon"}, "unknown network 'moon'"),
    ({"engine": "warp"}, "engine is 'warp': it must be auto, dense, loop or vmap"),
    ({"rule": "telepathy"}, "unknown rule 'telepathy'"),
    ({"task": "telepathy"}, "unknown task 'telepathy'"),
    ({"partition": "iid", "workers": 65}, "or partition shared"),
    ({"partition": [[0], [1]]}, "partition is [[0], [1]]: it must be a string"),
    ({"rule": "relaysgd"}, "topology is 'ring': rule 'relaysgd' needs a tree, such as path, star"),
    ({"seed": 2**63}, "seed is 9223372036854775808: it must be an integer of 64 bits"),
    ({"worker": 3}, "simulate has no setting 'worker', did you mean 'workers'?"),
    ({"memory_gib": 1e-9}, "0.0 GiB that memory_gib allows"),
    ({"task": consensus([[1.0], [2.0]])}, "task consensus has 2 vectors for 4 workers"),
    ({"wire": "topk:2"}, "fraction=2: it must be in"),
    ({"shards": 3, "shards_per_push": 4, "task": "digits"}, "shards_per_push is 4: it must be fr"),
    ({"shards": 100_000, "task": "digits"}, "shards is 100000: it must be from 1 to"),
    ({"shards": 2, "task": "consensus"}, "shards is 2: it must be from 1 to 1"),
    ({"rule": "allreduce", "wire": "int8"}, "'allreduce' needs numbers as they are"),
    ({"storm": "spot"}, "a storm needs time_s"),
    ({"storm": "spot", "time_s": 9.0, "faults": "[]"}, "faults and a storm are both given"),
    ({"storm": "spott", "time_s": 9.0}, "unknown storm 'spott', did you mean 'spot'"),
    ({"task": lambda: 3}, "returned a int: it must return a model"),
    ({"task": lambda path: tiny()}, "it must take no argument, or only seed"),
    ({"task": lambda: 1 / 0}, "raised ZeroDivisionError"),
    ({"task": Ellipsis}, "task is Ellipsis: it must be a name, a Task or a function"),
]


@pytest.mark.parametrize(("settings", "message"), BAD, ids=[message for _, message in BAD])
def test_invalid_settings_are_refused_with_a_reason(settings: dict[str, Any], message: str) -> None:
    defaults: dict[str, Any] = {"task": tiny(), "workers": 4, "topology": "ring"}
    with pytest.raises(ConfigError) as caught:
        simulate(**(defaults | settings))
    assert message in str(caught.value)
    assert "raised" not in message or "test_simulate.py" in str(caught.value)


def test_a_synchronous_rule_is_measured_right_after_a_round() -> None:
    settings: dict[str, Any] = {"task": "digits", "workers": 4, "steps": 12}
    settings |= {"eval_every": 2, "loss": 0.0}
    whole = simulate(**settings, rule="allreduce", network="wan", pace="lognormal:cv=0.3")
    assert not whole.series["consensus_distance"].any()
    ring = simulate(**settings, rule="dpsgd", network="wan", topology="ring")
    # All have taken as many steps: their mean is whole.
    assert (ring.series["steps"] % 1 == 0).all()
    assert (np.diff(ring.series["time_s"]) > 0).all()


def as_dicts(pairs: Task, **changes: Any) -> Task:
    """Return *pairs* as a task whose batches are dicts."""

    def step(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional.mse_loss(model(batch["x"]), batch["y"])

    settings: dict[str, Any] = {
        "loss": None,
        "training_step": step,
        "train": dict(zip("xy", pairs.train, strict=True)),
        "test": dict(zip("xy", pairs.test, strict=True)),
        "targets": pairs.train[1],
    }
    return replace(pairs, **settings | changes)


class Items:
    """A map-style dataset of a task's dicts."""

    def __init__(self, pairs: Task) -> None:
        self.pair = pairs.train

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.pair[0][index], "y": self.pair[1][index]}


def noisy(batch: Any) -> Any:
    """Add noise from all three random number generators."""
    noise = torch.randn_like(batch["x"]) + np.random.normal() + random.random()
    return {"x": batch["x"] + 0.1 * noise, "y": batch["y"]}


@pytest.mark.extended
@pytest.mark.parametrize("partition", ["shared", "dirichlet:0.5"])
def test_the_form_of_batches_changes_no_bit(partition: str) -> None:
    pairs = tiny(steps=10)
    dicts = as_dicts(pairs)
    tasks = [pairs, dicts, replace(dicts, train=Items(pairs), test=Items(pairs))]
    settings: dict[str, Any] = {"workers": 4, "partition": partition, "p": 0.5, "engine": "loop"}
    runs = [simulate(task=task, **settings) for task in tasks]
    assert len({run.summary["digest"] for run in runs}) == 1
    assert len({run.summary["loss"] for run in runs}) == 1


OWN = torch.eye(4)[:, :3].repeat(5, 1), torch.arange(4).repeat(5)


class Net(nn.Module):
    """A classifier that draws random numbers of torch, numpy and Python."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x + 0.1 * (torch.randn_like(x) + np.random.normal() + random.random())
        outputs: Tensor = self.out(x)
        return outputs


UNSTACKED = [
    (as_dicts(tiny(steps=10), augment=noisy), "it has a training_step"),
    (
        tiny(steps=10, train=ConcatDataset([TensorDataset(*tiny().train)])),
        "its data are not two tensors",
    ),
    (tiny(steps=10, augment=lambda batch: (-batch[0], batch[1])), "it augments its batches"),
    (tiny(steps=10, precision="bfloat16"), "its precision is bfloat16"),
    (Task(model=Net, train=OWN, test=OWN, steps=10), "random"),
]


@pytest.mark.extended
@pytest.mark.parametrize(("task", "why"), UNSTACKED)
def test_tasks_that_cannot_be_stacked_use_the_loop_and_give_a_reason(task: Task, why: str) -> None:
    settings: dict[str, Any] = {"task": task, "workers": 4, "partition": "iid", "p": 0.5}
    faults = [fault(0.3, "crash", 1), fault(0.5, "restart", 1)]
    runs = []
    for window, threads in ((1, 1), (500, 2)):
        # The random numbers of a step depend only on its worker and its index.
        np.random.seed(window)
        random.seed(window)
        runs.append(simulate(**settings, faults=faults, window=window, threads=threads))
    assert runs[0].summary["digest"] == runs[1].summary["digest"]
    assert runs[0].summary["engine"] == "loop" and why in runs[0].summary["engine_why"]
    with pytest.raises(ConfigError, match="Leave engine out"):
        simulate(**settings, engine="vmap")


def test_each_worker_augments_with_its_own_random_numbers() -> None:
    plain, augmented = (tiny(steps=1, augment=each) for each in (None, spread))
    settings: dict[str, Any] = {"workers": 4, "p": 0.0, "topology": "ring"}
    still, moved = (simulate(task=task, **settings) for task in (plain, augmented))
    assert still.summary["digest"] != moved.summary["digest"]
    drawn.clear()
    simulate(task=augmented, **settings, engine="loop")
    assert len(set(drawn)) == 4


drawn: list[float] = []


def spread(batch: Any) -> Any:
    drawn.append(float(torch.randn(())))
    return batch[0] * drawn[-1], batch[1]


def drawn_task(*, seed: int) -> Task:
    return tiny(steps=5, name=f"drawn {seed}")


def test_a_task_can_be_given_as_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("madetask.py").write_text(f"from {__name__} import drawn_task")
    settings: dict[str, Any] = {"workers": 3, "seed": 7, "p": 0.5}
    runs = [
        simulate(task=task, **settings)
        for task in (drawn_task, "madetask:drawn_task", drawn_task(seed=7))
    ]
    assert len({run.summary["digest"] for run in runs}) == 1
    assert [run.summary["task"] for run in runs] == ["drawn 7", "madetask:drawn_task", "drawn 7"]
    assert Swarm(lambda: tiny(), peers=2).finish()
    # So can a task without a model.
    given, named = (
        simulate(task=task, workers=4, steps=5, seed=2).summary for task in (consensus, "consensus")
    )
    assert given["digest"] == named["digest"] and given["task"] == "consensus"


class Noisy(Dataset[Any]):
    """Labeled samples with noise drawn from torch, numpy or Python."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = 0.1 * (torch.rand(3) + random.random() + np.random.rand())
        return torch.eye(4)[index % 4, :3] + noise, index % 4


def test_a_model_with_data_runs_like_its_task(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings: dict[str, Any] = {"workers": 4, "steps": 6, "seed": 1, "lr": 0.1, "p": 0.5}
    data: dict[str, Any] = {"train": TensorDataset(*OWN), "test": OWN}
    by_model = simulate(model=Net, **data, **settings)
    assert re.fullmatch(
        r"about \d+ (s|min) and \d\.\d GiB; 24 steps at [\d,]+ a second; engine loop \(.*\)\n",
        capsys.readouterr().err,
    )
    task = Task(model=Net, loss=functional.cross_entropy, accuracy=fraction_right, **data)
    by_task = simulate(task=task, **settings)
    for name in ("digest", "accuracy", "task"):
        assert by_model.summary[name] == by_task.summary[name]
    assert by_model.summary["task"] == "Net" and capsys.readouterr().err == ""


@pytest.mark.parametrize("train", [Noisy(), TensorDataset(torch.ones(9, 3), torch.arange(9) % 4)])
def test_estimating_the_cost_of_a_run_changes_no_bit(train: Any) -> None:
    settings: dict[str, Any] = {"workers": 3, "steps": 4, "batch_size": 4, "workers_tested": 1}
    reports: list[Progress] = []
    run = simulate(model=Net, train=train, test=Noisy(), progress=reports.append, **settings)
    (cost,) = (progress.cost for progress in reports if progress.cost is not None)
    assert (cost.steps, cost.engine) == (12, run.summary["engine"])
    assert cost.wall_s > cost.measuring_s > 0 and 0 < cost.memory_gib < 64
    quiet = simulate(task=Task(model=Net, train=train, test=Noisy()), **settings)
    assert run.summary["digest"] == quiet.summary["digest"]


def test_functions_belong_to_the_task_and_numbers_are_settings() -> None:
    inputs, targets = tiny().train
    settings: dict[str, Any] = {"workers": 3, "steps": 5, "progress": lambda progress: None}
    run = simulate(
        model=lambda: nn.Linear(3, 1),
        train=(inputs, targets),
        test=(inputs, targets),
        loss=functional.mse_loss,
        optimizer=torch.optim.Adam,
        accuracy=lambda outputs, targets: 0.25,
        lr=0.05,
        batch_size=8,
        **settings,
    )
    task = tiny(optimizer=torch.optim.Adam)
    assert run.summary["digest"] == simulate(task=task, **settings).summary["digest"]
    assert (run.summary["optimizer"], run.summary["accuracy"]) == ("Adam", 0.25)
    # As a number, loss is the fraction of messages that are lost.
    lossy = simulate(model=Net, train=Noisy(), test=Noisy(), loss=0.5, **settings)
    assert lossy.summary["network_loss"] == 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": Net}, "model needs train and test, as in simulate"),
        ({"model": Net, "train": Noisy()}, "model needs test"),
        ({"model": Net(), "train": Noisy(), "test": Noisy()}, "model is a Net: it must be what"),
        ({"model": Net, "train": Noisy(), "test": Noisy(), "task": "digits"}, "both given"),
        ({"model": Net, "train": Noisy(), "test": Noisy(), "optimizer": 3}, "optimizer is 3"),
        ({"train": Noisy()}, "simulate has no setting 'train': give it with model"),
        ({"model": Net, "train": [1], "test": Noisy()}, "train is a list of int: it must be"),
    ],
)
def test_invalid_models_and_data_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(workers=2, **settings)


def test_no_grad_and_numpy_numbers_change_no_bit() -> None:
    settings: dict[str, Any] = {"model": lambda: nn.Linear(3, 4), "train": OWN, "test": OWN}
    plain = simulate(**settings, workers=2, steps=3, lr=0.25)
    with torch.no_grad():
        quiet = simulate(**settings, workers=2, steps=3, lr=np.float32(0.25))
    with torch.inference_mode():
        frozen = simulate(**settings, workers=np.int64(2), steps=3, lr=np.float64(0.25))
    assert {run.summary["digest"] for run in (quiet, frozen)} == {plain.summary["digest"]}
    assert quiet.summary["engine"] == plain.summary["engine"] == "dense"


def test_non_finite_data_are_not_blamed_on_the_learning_rate() -> None:
    data = torch.full((8, 3), math.nan), torch.arange(8) % 4
    with pytest.raises(TrainingError, match=r"at its step 1: .* look for such numbers in data"):
        simulate(model=lambda: nn.Linear(3, 4), train=data, test=data, workers=2, steps=3)


CALM: dict[str, Any] = {"task": "noise", "workers": 8, "threads": 1, "step_s": 1.0}


@pytest.mark.extended
def test_a_storm_equals_the_list_of_its_faults() -> None:
    settings = {"time_s": 90.0, "seed": 4, "checkpoint_every_s": 5.0, **CALM}
    drawn = draw_storm("torchft-15s", 8, 90.0, 4, scale=2.0)
    by_name = simulate(storm="torchft-15s", storm_scale=2.0, **settings).summary
    by_list = simulate(faults=drawn.faults, **settings).summary
    assert by_name["crashes"] > 3 and by_name["digest"] == by_list["digest"]
    # Another seed draws another storm.
    other = simulate(storm="torchft-15s", storm_scale=2.0, **(settings | {"seed": 5})).summary
    assert other["faults"] != by_name["faults"]


def test_the_network_of_a_storm_replaces_the_default() -> None:
    settings = {"rule": "allreduce", "steps": 4, "time_s": 60.0, **CALM}
    near = simulate(**settings).summary["virtual_time_s"]
    # Its sites are 10 to 70 ms apart; nothing is cut off within a minute of this seed.
    far = simulate(storm="wan-4-sites", **settings).summary["virtual_time_s"]
    assert near < 4.1 and far > 4.1


def test_a_stand_in_model_takes_as_long_as_the_large_model() -> None:
    # 8 numbers of 8 bytes stand for 16 million of 4 bytes: 64 MB take 8 s at 64 Mbit/s. A host
    # sends and receives at once, and other messages add a little.
    settings = {**CALM, "workers": 2, "rule": "allreduce", "steps": 5, "latency_s": 0.0}
    alone = simulate(bandwidth_mbit=64.0, **settings).summary
    large = simulate(bandwidth_mbit=64.0, stands_for=16e6, **settings).summary
    assert alone["virtual_time_s"] == pytest.approx(5.0, abs=0.1)
    assert large["virtual_time_s"] > 5 * (1 + 8)


def test_fewer_samples_and_workers_are_measured_on_request() -> None:
    settings: dict[str, Any] = {"task": "digits", "workers": 4, "steps": 4, "threads": 1}
    whole, few = simulate(**settings), simulate(tested=20, workers_tested=0, **settings)
    assert few.summary["digest"] == whole.summary["digest"]
    assert "loss_quantiles" not in few.series and "loss_quantiles" in whole.series
    # The prediction for each of the 20 samples is right or wrong.
    assert (few.summary["accuracy"] * 20) % 1 == pytest.approx(0.0, abs=1e-6)
    # This holds for any form of data: a dataset, and a dict of tensors.
    run = simulate(model=Net, train=Noisy(), test=Noisy(), workers=2, steps=2, tested=4)
    assert (run.summary["accuracy"] * 4) % 1 == 0.0
    summary = simulate(task=as_dicts(tiny()), workers=2, steps=2, tested=2).summary
    assert summary["accuracy"] is None and summary["loss"] > 0
