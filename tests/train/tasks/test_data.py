"""Batches: the samples of a step, their form, and their randomness."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

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
    """A dataset of dicts, with targets as an attribute, as in torchvision."""

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

    def collect(side: Tensor) -> Tensor:
        found.extend(side.flatten().tolist())
        return side

    map_tensors(batch, collect)
    return found


FORMS = {
    "tensors": task(),
    "dataset": task(train=Items(jitter=True)),
    "augmented": task(augment=lambda b: b | {"x": b["x"] + torch.randn(()) + np.random.rand()}),
}


def test_dicts_datasets_and_pairs_give_the_same_samples() -> None:
    pairs = task(train=(X, Y), test=(X, Y), training_step=None, loss=nn.functional.mse_loss)
    ours = [loader(each) for each in (task(), task(train=Items()), pairs)]
    ours.append(loader(task(train=TensorDataset(X, Y))))
    for at in range(7):
        first, *others = [each.take(at) for each in ours]
        assert list(first) == ["x", "y"] and first["x"].shape == (6, 2)
        assert all(flat(other) == flat(first) for other in others)


@pytest.mark.parametrize("form", FORMS)
def test_batches_can_be_requested_in_any_order(form: str) -> None:
    in_order, at_once = loader(FORMS[form]), loader(FORMS[form])
    batches = [flat(in_order.take(at)) for at in range(12)]
    assert len({tuple(batch) for batch in batches}) == 12
    for at in (9, 10, 3, 0, 11):
        assert flat(at_once.take(at)) == batches[at]


def draws() -> tuple[list[float], float, float]:
    return torch.rand(2).tolist(), random.random(), np.random.rand()


def seed_all() -> None:
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(5)


@pytest.mark.parametrize("form", FORMS)
def test_batches_depend_on_seed_and_peer_and_leave_global_generators_unchanged(form: str) -> None:
    seed_all()
    expected = draws()
    seed_all()
    first = flat(loader(FORMS[form]).take(0))
    task(test=Items(jitter=True)).evaluate(nn.utils.skip_init(nn.Linear, 2, 1))
    assert draws() == expected
    assert first == flat(loader(FORMS[form]).take(0)) != flat(loader(FORMS[form], "b").take(0))


def test_a_dataset_can_return_whole_batches_and_the_task_collates() -> None:
    class Whole(Items):
        def __getitems__(self, indices: list[int]) -> list[dict[str, Tensor]]:
            return [{"x": X[index] + 100, "y": Y[index]} for index in indices]

    mean = task(train=Whole(), collate=lambda items: torch.stack([item["x"] for item in items]))
    batch = loader(mean).take(0)
    assert batch.shape == (6, 2) and batch.min() >= 100


def test_batches_keep_their_structure() -> None:
    batch = {"a": [X, "name"], "b": (Y, None), "c": 3}
    doubled = map_tensors(batch, lambda side: side * 2)
    assert torch.equal(doubled["a"][0], 2 * X) and torch.equal(doubled["b"][0], 2 * Y)
    assert doubled["a"][1] == "name" and doubled["b"][1] is None and doubled["c"] == 3
    assert batch_length(batch) == 20
    with pytest.raises(TrainingError, match="a batch is a dict without a tensor"):
        batch_length({"a": 3})


@pytest.mark.parametrize("form", ["dataset", "augmented"])
@pytest.mark.parametrize("journal", [False, True])
def test_a_resumed_peer_continues_with_the_same_batches(
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
def test_data_of_any_form_can_be_split(form: str, partition: str) -> None:
    parts = FORMS[form].split(partition, 4, seed=0)
    held = [sample for part in parts for sample in part.tolist()]
    assert sorted(held) == list(range(20))


@pytest.mark.parametrize("partition", ["dirichlet:0.1", "shards:2"])
def test_a_partition_by_class_needs_targets(partition: str) -> None:
    with pytest.raises(ConfigError, match="give the task targets, or use iid or shared"):
        task().split(partition, 4, seed=0)
    by_targets = task(targets=Y).split(partition, 4, seed=0)
    by_dataset = task(train=TensorDataset(X, Y)).split(partition, 4, seed=0)
    assert [part.tolist() for part in by_targets] == [part.tolist() for part in by_dataset]


@pytest.mark.parametrize("test", [{"x": X, "y": Y}, Items()])
def test_evaluation_does_not_depend_on_the_form_of_the_data(test: Any) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    with torch.no_grad():
        expected = float(step(model, {"x": X, "y": Y}))
    found = task(test=test).evaluate(model)
    assert found.loss == pytest.approx(expected, rel=1e-6) and found.accuracy is None
    assert model.training


def test_the_evaluation_step_of_a_task_is_used() -> None:
    def evaluation_step(model: nn.Module, batch: dict[str, Tensor]) -> Evaluation:
        assert not model.training and not torch.is_grad_enabled()
        y = batch["y"]
        return Evaluation(loss=float(y.mean()), accuracy=float((y > 1).float().mean()))

    found = task(evaluation_step=evaluation_step).evaluate(nn.Linear(2, 1))
    assert found.loss == pytest.approx(1.5) and found.accuracy == pytest.approx(0.5)
    wrong: Any = lambda model, batch: 0.5  # noqa: E731
    with pytest.raises(TrainingError, match="returned a float: it must return an Evaluation"):
        task(evaluation_step=wrong).evaluate(nn.Linear(2, 1))


class Stream(IterableDataset[Any]):
    """A dataset without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"training_step": None}, "a batch of task lines is a dict of x, y: without loss"),
    ({"training_step": None, "train": (X, Y)}, r"float32 of shape \(1, 2\) and float32 of shape"),
    ({"training_step": 3}, "training_step is a int: it must be a function"),
    ({"accuracy": nn.MSELoss}, r"accuracy is the class MSELoss: give an instance, MSELoss\(\)"),
    ({"optimizer": "sgd"}, "optimizer is a str: it must be a function"),
    ({"model": nn.Linear(2, 1)}, "model is a Linear: it must be what makes an nn.Module"),
    ({"loss": nn.functional.mse_loss}, "both"),
    ({"accuracy": lambda outputs, targets: 1.0}, "give evaluation_step"),
    ({"train": {"x": X, "y": Y[:3]}}, "train has 20 of 'x', 3 of 'y'"),
    ({"train": {"x": torch.tensor(1.0)}}, "a tensor without axes"),
    ({"train": {}}, "train is a dict"),
    ({"train": []}, "train is a list"),
    ({"train": (X.numpy(), Y.numpy())}, "train is a tuple of ndarray, ndarray: it must be"),
    ({"test": Stream()}, r"test is a Stream: .* \(a Stream has no __len__\)"),
    ({"train": Items}, "train is a type"),
    (
        {"train": DataLoader(Items())},
        r"train is a DataLoader: it must be .*, such as its \.dataset",
    ),
    ({"train": Subset(Items(), [])}, "without samples"),
    ({"targets": Y[:3]}, "20 samples and 3 targets"),
    ({"precision": "float8"}, "precision is 'float8'"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_inconsistent_settings_of_a_task_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task(**changes)


class Two(nn.Module):
    """Returns a tuple."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class Unreadable(Items):
    """A dataset whose second half cannot be read."""

    def __getitem__(self, index: int) -> Any:
        return X[index], "a word" if index < 10 else 1 / 0


LABELS = Y.long()
FAILING: list[tuple[dict[str, Any], str]] = [
    (
        {"model": Two},
        "gave float32 .* and float32 .*, and the loss raised TypeError: cross_entropy",
    ),
    ({"model": lambda: nn.Linear(3, 4)}, r"of a batch of float32 of shape \(6, 2\) .* raised Runt"),
    ({"model": lambda: nn.Linear(2, 3)}, "the loss raised IndexError: Target 3 is out of bounds"),
    ({"loss": lambda outputs, targets: outputs}, r"loss of task lines returned float32 of shape"),
    (
        {"training_step": lambda model, batch: model(batch[0])},
        r"training_step of .* float32 of shape \(6, 4\): it must return a scalar",
    ),
    ({"train": Items(), "loss": nn.MSELoss()}, "dict of x, y: loss needs two tensors"),
    ({"train": Unreadable(), "loss": nn.MSELoss()}, "of the Unreadable cannot be read: ZeroDivis"),
    ({"model": nn.Linear}, "the model of task lines raised TypeError: .* missing 2 required"),
    ({"model": lambda: 3}, "the model of task lines is a int: it must be an nn.Module"),
]


@pytest.mark.parametrize(("changes", "message"), FAILING)
def test_errors_of_a_users_model_loss_or_data_are_short(
    changes: dict[str, Any], message: str
) -> None:
    pair = {"train": (X, LABELS), "test": (X, LABELS), "training_step": None}
    wrong = task(**pair | {"model": lambda: nn.Linear(2, 4)} | changes)
    with pytest.raises(TrainingError, match=message) as caught:
        wrong.batch_loss(wrong.build(), loader(wrong).take(0))
    assert len(str(caught.value).splitlines()) <= 2


def test_a_loss_without_a_gradient_is_refused() -> None:
    model = nn.Linear(2, 4)
    data: dict[str, Any] = {"train": (X, LABELS), "test": (X, LABELS), "training_step": None}
    detached = task(**data, loss=lambda outputs, targets: outputs.detach().sum())
    with pytest.raises(TrainingError, match="the loss of task lines has no gradient"):
        detached.backward(detached.batch_loss(model, (X, LABELS)))
    plain = task(**data)
    with torch.no_grad(), pytest.raises(TrainingError, match=r"or was computed under .*no_grad"):
        plain.backward(plain.batch_loss(model, (X, LABELS)))


def test_errors_of_an_evaluation_are_reported() -> None:
    model = nn.Linear(2, 4)
    data: dict[str, Any] = {"train": (X, LABELS), "test": (X, LABELS + 4), "training_step": None}
    with pytest.raises(TrainingError, match=r"the loss raised IndexError: Target .* out of bounds"):
        task(**data).evaluate(model)
    data |= {"test": (X, LABELS), "accuracy": lambda outputs, targets: 1 / 0}
    with pytest.raises(TrainingError, match=r"evaluation of task lines, .* raised ZeroDivisionErr"):
        task(**data).evaluate(model)


def test_an_optimizer_that_needs_a_closure_is_refused() -> None:
    with pytest.raises(ConfigError, match="LBFGS, whose step needs a closure"):
        task(optimizer=torch.optim.LBFGS).make_optimizer(nn.Linear(2, 1).parameters(), 0.1)


def test_a_model_and_labeled_data_make_a_task() -> None:
    made = Task(model=Four, train=TensorDataset(X, LABELS), test=Subset(pairs(), [3, 7]))
    assert (made.name, made.loss, made.batch_size) == ("Four", nn.functional.cross_entropy, 32)
    assert made.train[1] is LABELS and made.test[1].tolist() == [3, 3]
    torch.manual_seed(0)
    model = made.build()
    with torch.no_grad():
        outputs = model(made.test[0])
    found, expected = made.evaluate(model), nn.functional.cross_entropy(outputs, made.test[1])
    assert found.loss == pytest.approx(float(expected))
    assert found.accuracy == (outputs.argmax(1) == made.test[1]).double().mean().item()
    # A subclass, which may augment its samples, stays a dataset.
    assert type(Task(model=Four, train=Augmented(X, LABELS), test=pairs()).train) is Augmented


class Four(nn.Linear):
    """A classifier of four classes."""

    def __init__(self) -> None:
        super().__init__(2, 4)


class Augmented(TensorDataset):
    """A dataset with samples of its own."""

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return X[index] + torch.rand(2), LABELS[index]


def pairs() -> TensorDataset:
    return TensorDataset(X, LABELS)


@pytest.mark.parametrize(
    ("outputs", "targets", "accuracy"),
    [
        (torch.eye(3), torch.tensor([0, 1, 1]), 2 / 3),
        (torch.eye(3).expand(2, 3, 3).mT, torch.tensor([[0, 1, 2], [0, 0, 0]]), 4 / 6),
        (torch.zeros(2, 5, 4), torch.zeros(2, 5, dtype=torch.int64), 1.0),
        (torch.eye(3), torch.tensor([0.0, 1.0, 1.0]), None),
        (torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64), None),
        (torch.zeros(3), torch.zeros(3, dtype=torch.int64), None),
        ((torch.eye(3),), torch.tensor([0, 1, 1]), None),
    ],
)
def test_accuracy_needs_class_labels(outputs: Any, targets: Tensor, accuracy: float | None) -> None:
    found = Task(model=Four, train=pairs(), test=pairs()).accuracy_of(outputs, targets)
    assert found == (accuracy if accuracy is None else pytest.approx(accuracy))


@pytest.mark.cuda
def test_gpu_batches_equal_cpu_batches_and_are_augmented_on_the_gpu() -> None:
    gpu = torch.device("cuda", 0)

    def loader_on(source: Task, device: torch.device) -> Loader:
        return Loader(source, EVERYTHING, batch_size=6, seed=1, peer="a", device=device)

    expected, found = loader_on(task(), CPU), loader_on(task(), gpu)
    assert all(flat(found.take(at)) == flat(expected.take(at)) for at in range(5))
    drawn = task(augment=lambda b: b | {"x": b["x"] + torch.randn_like(b["x"])})
    state = torch.cuda.get_rng_state(gpu)
    batches = [loader_on(drawn, gpu).take(3)["x"] for _ in range(2)]
    assert batches[0].is_cuda and torch.equal(*batches)
    assert torch.equal(torch.cuda.get_rng_state(gpu), state)


@given(n_own=st.integers(1, 20), batch_size=st.integers(1, 25))
def test_every_pass_has_each_sample_once(n_own: int, batch_size: int) -> None:
    sampler = Sampler(np.arange(n_own), batch_size, seed=0, peer="a")
    taken = np.concatenate([sampler.batch(step) for step in range(3 * n_own)])
    passes = taken[: len(taken) // n_own * n_own].reshape(-1, n_own)
    assert (np.sort(passes, axis=1) == np.arange(n_own)).all()


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_batches_have_the_requested_size_or_all_samples(batch_size: int) -> None:
    sampler = Sampler(INDICES, batch_size, seed=0, peer="a")
    assert {len(sampler.batch(step)) for step in range(20)} == {min(batch_size, 7)}
    assert sampler.batch(4).dtype == np.int64
    assert batch_size < 7 or sorted(sampler.batch(4).tolist()) == INDICES.tolist()


def test_each_peer_seed_and_pass_has_its_own_order() -> None:
    orders = [
        Sampler(np.arange(50), 50, seed=seed, peer=peer).batch(step).tolist()
        for seed in (0, 1)
        for peer in "ab"
        for step in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == 8


def test_changes_to_a_returned_batch_do_not_reach_the_sampler() -> None:
    sampler = Sampler(INDICES, 3, seed=0, peer="a")
    before = sampler.batch(0).copy()
    sampler.batch(0)[:] = -1
    assert np.array_equal(sampler.batch(0), before)


@pytest.mark.parametrize(
    ("samples", "batch_size", "step", "message"),
    [
        (INDICES, 0, 0, "batch_size is 0"),
        (INDICES[:0], 1, 0, "peer a has no samples"),
        (INDICES, 1, -1, "step is -1"),
    ],
)
def test_invalid_arguments_of_a_batch_are_refused(
    samples: Any, batch_size: int, step: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampler(samples, batch_size, seed=0, peer="a").batch(step)


@given(
    n_own=st.integers(1, 20),
    batch_size=st.integers(1, 25),
    steps=st.lists(st.integers(0, 30), max_size=10),
)
def test_a_batch_depends_only_on_its_step(n_own: int, batch_size: int, steps: list[int]) -> None:
    used = Sampler(np.arange(n_own), batch_size, seed=1, peer="a")
    for step in steps:
        fresh = Sampler(np.arange(n_own), batch_size, seed=1, peer="a")
        assert np.array_equal(used.batch(step), fresh.batch(step))
