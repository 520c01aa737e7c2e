"""Batches: which samples a step gets, in which form, and what is random in them."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from rumor.gossip.errors import ConfigError, TrainingError
from rumor.train import Evaluation, Task
from rumor.train.config import RunConfig
from rumor.train.loop import learner as module
from rumor.train.loop.learner import Learner
from rumor.train.tasks.data import Loader, Sampler, batch_length, map_tensors

INDICES = np.array([3, 5, 8, 13, 21, 34, 55])
CPU = torch.device("cpu")
X = torch.arange(40.0).reshape(20, 2)
Y = torch.arange(20.0) % 4
EVERYTHING = np.arange(20)


class Items(Dataset[Any]):
    """A dataset of dicts, with the targets where torchvision has them."""

    targets = Y.tolist()

    def __init__(self, jitter: bool = False) -> None:
        self.jitter = jitter

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        drawn = torch.rand(()) + random.random() + np.random.rand() if self.jitter else 0.0
        return {"x": X[index] + drawn, "y": Y[index]}


def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    outputs: Tensor = model(batch["x"])
    return (outputs[:, 0] - batch["y"]).square().mean()


def task(**changes: Any) -> Task:
    settings: dict[str, Any] = {
        "name": "lines",
        "model": lambda: nn.Linear(2, 1),
        "train": {"x": X, "y": Y},
        "test": {"x": X, "y": Y},
        "training_step": step,
        "lr": 1e-4,
        "batch_size": 6,
        "steps": 8,
    }
    return Task(**settings | changes)


def loader(task: Task, peer: str = "a", samples: Any = EVERYTHING) -> Loader:
    return Loader(task, samples, batch_size=6, seed=1, peer=peer, device=CPU)


def flat(batch: Any) -> list[float]:
    found: list[float] = []

    def note(side: Tensor) -> Tensor:
        found.extend(side.flatten().tolist())
        return side

    map_tensors(batch, note)
    return found


FORMS = {
    "tensors": task(),
    "dataset": task(train=Items(jitter=True)),
    "augmented": task(augment=lambda b: b | {"x": b["x"] + torch.randn(()) + np.random.rand()}),
}


def test_a_dict_of_tensors_a_dataset_and_a_pair_give_the_same_samples() -> None:
    pairs = task(train=(X, Y), test=(X, Y), training_step=None, loss=nn.functional.mse_loss)
    ours = [loader(each) for each in (task(), task(train=Items()), pairs)]
    ours.append(loader(task(train=TensorDataset(X, Y))))
    for at in range(7):
        first, *others = [each.take(at) for each in ours]
        assert list(first) == ["x", "y"] and first["x"].shape == (6, 2)
        assert all(flat(other) == flat(first) for other in others)


@pytest.mark.parametrize("form", FORMS)
def test_any_step_can_be_asked_for_first(form: str) -> None:
    in_order, at_once = loader(FORMS[form]), loader(FORMS[form])
    batches = [flat(in_order.take(at)) for at in range(12)]
    assert len({tuple(batch) for batch in batches}) == 12
    for at in (9, 10, 3, 0, 11):
        assert flat(at_once.take(at)) == batches[at]


def draws() -> tuple[list[float], float, float]:
    return torch.rand(2).tolist(), random.random(), np.random.rand()


def seeded() -> None:
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(5)


@pytest.mark.parametrize("form", FORMS)
def test_batches_follow_from_seed_and_peer_and_change_no_other_draw(form: str) -> None:
    seeded()
    expected = draws()
    seeded()
    first = flat(loader(FORMS[form]).take(0))
    task(test=Items(jitter=True)).evaluate(nn.utils.skip_init(nn.Linear, 2, 1))
    assert draws() == expected
    assert first == flat(loader(FORMS[form]).take(0)) != flat(loader(FORMS[form], "b").take(0))


def test_a_dataset_may_give_a_batch_at_once_and_be_collated_by_the_task() -> None:
    class Whole(Items):
        def __getitems__(self, indices: list[int]) -> list[dict[str, Tensor]]:
            return [{"x": X[index] + 100, "y": Y[index]} for index in indices]

    mean = task(train=Whole(), collate=lambda items: torch.stack([item["x"] for item in items]))
    batch = loader(mean).take(0)
    assert batch.shape == (6, 2) and batch.min() >= 100


def test_batches_keep_their_form() -> None:
    batch = {"a": [X, "name"], "b": (Y, None), "c": 3}
    doubled = map_tensors(batch, lambda side: side * 2)
    assert torch.equal(doubled["a"][0], 2 * X) and torch.equal(doubled["b"][0], 2 * Y)
    assert doubled["a"][1] == "name" and doubled["b"][1] is None and doubled["c"] == 3
    assert batch_length(batch) == 20
    with pytest.raises(TrainingError, match="a batch is a dict without a tensor"):
        batch_length({"a": 3})


@pytest.mark.parametrize("form", ["dataset", "augmented"])
@pytest.mark.parametrize("journal", [False, True])
def test_a_peer_that_resumes_goes_on_with_the_same_batches(
    form: str, journal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "load_task", lambda spec, seed: FORMS[form])
    config = RunConfig(journal=journal)
    whole, first = Learner(config, "a"), Learner(config, "a")
    losses = [float(whole.step()) for _ in range(9)]
    assert [float(first.step()) for _ in range(5)] == losses[:5]
    resumed = Learner(config, "a")
    resumed.model.load_state_dict(first.model.state_dict())
    resumed.load_state_dict(first.state_dict())
    assert [float(resumed.step()) for _ in range(4)] == losses[5:]


@pytest.mark.parametrize(("form", "partition"), [("tensors", "iid"), ("dataset", "dirichlet:1")])
def test_data_of_any_form_are_split(form: str, partition: str) -> None:
    parts = FORMS[form].split(partition, 4, seed=0)
    held = [sample for part in parts for sample in part.tolist()]
    assert sorted(held) == list(range(20))


@pytest.mark.parametrize("partition", ["dirichlet:0.1", "shards:2"])
def test_a_partition_by_class_needs_targets(partition: str) -> None:
    with pytest.raises(ConfigError, match="give the task targets, or use iid or shared"):
        task().split(partition, 4, seed=0)
    given = task(targets=Y).split(partition, 4, seed=0)
    also = task(train=TensorDataset(X, Y)).split(partition, 4, seed=0)
    assert [part.tolist() for part in given] == [part.tolist() for part in also]


@pytest.mark.parametrize("test", [{"x": X, "y": Y}, Items()])
def test_held_out_data_of_any_form_are_measured_alike(test: Any) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    with torch.no_grad():
        expected = float(step(model, {"x": X, "y": Y}))
    found = task(test=test).evaluate(model)
    assert found.loss == pytest.approx(expected, rel=1e-6) and found.accuracy is None
    assert model.training


def test_an_evaluation_step_says_how_good_a_model_is() -> None:
    def evaluation_step(model: nn.Module, batch: dict[str, Tensor]) -> Evaluation:
        assert not model.training and not torch.is_grad_enabled()
        y = batch["y"]
        return Evaluation(loss=float(y.mean()), accuracy=float((y > 1).float().mean()))

    found = task(evaluation_step=evaluation_step).evaluate(nn.Linear(2, 1))
    assert found.loss == pytest.approx(1.5) and found.accuracy == pytest.approx(0.5)
    wrong: Any = lambda model, batch: 0.5  # noqa: E731
    with pytest.raises(TrainingError, match="returned a float: it must return an Evaluation"):
        task(evaluation_step=wrong).evaluate(nn.Linear(2, 1))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"training_step": None}, "neither"),
    ({"loss": nn.functional.mse_loss}, "both"),
    ({"accuracy": lambda outputs, targets: 1.0}, "give evaluation_step"),
    ({"train": {"x": X, "y": Y[:3]}}, "train has 20 of 'x', 3 of 'y'"),
    ({"train": {"x": torch.tensor(1.0)}}, "a tensor without axes"),
    ({"train": {}}, "train is a dict"),
    ({"train": []}, "train is a list"),
    ({"train": Items}, "train is a type"),
    ({"train": DataLoader(Items())}, "train is a DataLoader: it must be"),
    ({"train": Subset(Items(), [])}, "without samples"),
    ({"targets": Y[:3]}, "20 samples and 3 targets"),
    ({"precision": "float8"}, "precision is 'float8'"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task(**changes)


def test_a_batch_or_a_loss_of_the_wrong_form_is_named() -> None:
    model = nn.Linear(2, 1)
    pairs = task(train=Items(), test=Items(), training_step=None, loss=nn.functional.mse_loss)
    with pytest.raises(TrainingError, match="dict of x, y: loss needs two tensors"):
        pairs.batch_loss(model, loader(pairs).take(0))
    with pytest.raises(TrainingError, match=r"returned shape \(20, 1\): it must return a scalar"):
        task(training_step=lambda model, batch: model(batch["x"])).batch_loss(model, {"x": X})


@pytest.mark.cuda
def test_batches_on_a_gpu_are_those_of_the_cpu_and_augmented_there() -> None:
    gpu = torch.device("cuda", 0)

    def moved(given: Task, device: torch.device) -> Loader:
        return Loader(given, EVERYTHING, batch_size=6, seed=1, peer="a", device=device)

    expected, found = moved(task(), CPU), moved(task(), gpu)
    assert all(flat(found.take(at)) == flat(expected.take(at)) for at in range(5))
    drawn = task(augment=lambda b: b | {"x": b["x"] + torch.randn_like(b["x"])})
    state = torch.cuda.get_rng_state(gpu)
    batches = [moved(drawn, gpu).take(3)["x"] for _ in range(2)]
    assert batches[0].is_cuda and torch.equal(*batches)
    assert torch.equal(torch.cuda.get_rng_state(gpu), state)


@given(
    n_own=st.integers(1, 20),
    batch_size=st.integers(1, 25),
    steps=st.lists(st.integers(0, 30), max_size=10),
)
def test_a_batch_depends_on_its_step_alone(n_own: int, batch_size: int, steps: list[int]) -> None:
    used = Sampler(np.arange(n_own), batch_size, seed=1, peer="a")
    for step in steps:
        fresh = Sampler(np.arange(n_own), batch_size, seed=1, peer="a")
        assert np.array_equal(used.batch(step), fresh.batch(step))


@given(n_own=st.integers(1, 20), batch_size=st.integers(1, 25))
def test_every_pass_has_each_sample_once(n_own: int, batch_size: int) -> None:
    sampler = Sampler(np.arange(n_own), batch_size, seed=0, peer="a")
    taken = np.concatenate([sampler.batch(step) for step in range(3 * n_own)])
    passes = taken[: len(taken) // n_own * n_own].reshape(-1, n_own)
    assert (np.sort(passes, axis=1) == np.arange(n_own)).all()


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_all_batches_are_of_the_size_asked_for_or_the_whole_set(batch_size: int) -> None:
    sampler = Sampler(INDICES, batch_size, seed=0, peer="a")
    assert {len(sampler.batch(step)) for step in range(20)} == {min(batch_size, 7)}
    assert sampler.batch(4).dtype == np.int64
    assert batch_size < 7 or sorted(sampler.batch(4).tolist()) == INDICES.tolist()


def test_each_peer_seed_and_pass_has_an_order_of_its_own() -> None:
    orders = [
        Sampler(np.arange(50), 50, seed=seed, peer=peer).batch(step).tolist()
        for seed in (0, 1)
        for peer in "ab"
        for step in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == 8


def test_a_batch_is_not_changed_by_what_its_owner_does_with_the_last_one() -> None:
    sampler = Sampler(INDICES, 3, seed=0, peer="a")
    before = sampler.batch(0).copy()
    sampler.batch(0)[:] = -1
    assert np.array_equal(sampler.batch(0), before)


@pytest.mark.parametrize(
    ("samples", "batch_size", "step", "says"),
    [
        (INDICES, 0, 0, "batch_size is 0"),
        (INDICES[:0], 1, 0, "peer a has no samples"),
        (INDICES, 1, -1, "step is -1"),
    ],
)
def test_what_has_no_batch_is_refused(samples: Any, batch_size: int, step: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Sampler(samples, batch_size, seed=0, peer="a").batch(step)
