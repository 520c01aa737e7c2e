"""Batches of dicts, datasets and loaders: which ones a step gets, and what is random in them."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from rumor.gossip.errors import ConfigError, TrainingError
from rumor.train import Evaluation, Task
from rumor.train.config import RunConfig
from rumor.train.loop import learner as module
from rumor.train.loop.learner import Learner
from rumor.train.tasks.data import Loader, make_loader
from rumor.train.tasks.sources import LoaderContext, batch_length, map_tensors

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


def shuffled(context: LoaderContext) -> Iterable[Any]:
    """A loader with a length, whose order is drawn anew in each pass."""
    data: Any = Items(jitter=True)
    if context.samples is not None:
        data = Subset(data, context.samples.tolist())
    return DataLoader(data, context.batch_size, shuffle=True)


def streamed(context: LoaderContext) -> Iterator[Any]:
    """The same without a length: passes become longer."""
    for _ in range(2 + context.epoch):
        yield {"x": torch.randn(3, 2), "y": torch.randn(3)}


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
    part = None if task.n_samples is None and callable(task.train) else samples
    return make_loader(task, part, batch_size=6, seed=1, peer=peer, device=CPU)


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
    "loader": task(train=shuffled, n_samples=20),
    "stream": task(train=streamed),
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


@pytest.mark.parametrize("form", FORMS)
def test_batches_follow_from_seed_and_peer_and_change_no_other_draw(form: str) -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    expected = torch.rand(2).tolist(), random.random(), np.random.rand()
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    one, other = loader(FORMS[form]), loader(FORMS[form], peer="b")
    first = flat(one.take(0))
    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == expected
    assert first == flat(loader(FORMS[form]).take(0)) != flat(other.take(0))


def test_a_loader_takes_the_peers_part_once_a_pass() -> None:
    plain = task(
        train=lambda context: DataLoader(
            Subset(Items(), context.samples.tolist()), context.batch_size, shuffle=True
        ),
        n_samples=20,
    )
    part = np.array([1, 4, 7, 9, 12, 18, 19])
    ours = loader(plain, samples=part)
    for _ in range(3):
        taken = torch.cat([ours.take(at)["x"] for at in range(2)])
        assert sorted(taken[:, 0].tolist()) == X[part, 0].tolist()


def test_a_loader_is_told_which_pass_of_which_part_it_is_of() -> None:
    told: list[LoaderContext] = []

    def factory(context: LoaderContext) -> list[Any]:
        told.append(context)
        return [(X, Y)]

    given = task(train=factory, n_samples=20)
    ours = make_loader(
        given, EVERYTHING[:5], batch_size=3, seed=1, peer="a", index=2, count=4, device=CPU
    )
    for at in range(3):
        ours.take(at)
    assert [context.epoch for context in told] == [0, 1, 2]
    assert len({context.seed for context in told}) == 3
    assert {(c.index, c.count, c.batch_size) for c in told} == {(2, 4, 3)}
    assert all(np.array_equal(c.samples, EVERYTHING[:5]) for c in told if c.samples is not None)


def test_a_pass_without_batches_is_an_error() -> None:
    with pytest.raises(TrainingError, match="pass 0 for peer a gave no batch"):
        loader(task(train=lambda context: [])).take(0)


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


@pytest.mark.parametrize("form", ["dataset", "loader", "augmented"])
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


@pytest.mark.parametrize(
    ("form", "partition"), [("tensors", "iid"), ("dataset", "dirichlet:1"), ("loader", "iid")]
)
def test_data_of_any_form_are_split(form: str, partition: str) -> None:
    parts = FORMS[form].split(partition, 4, seed=0)
    held = [sample for part in parts if part is not None for sample in part.tolist()]
    assert sorted(held) == list(range(20))


def test_a_stream_has_no_parts() -> None:
    assert FORMS["stream"].split("shared", 3, seed=0) == [None] * 3
    with pytest.raises(ConfigError, match=r"'iid' .* loader factory: give it n_samples"):
        FORMS["stream"].split("iid", 3, seed=0)


@pytest.mark.parametrize("partition", ["dirichlet:0.1", "shards:2"])
def test_a_partition_by_class_needs_targets(partition: str) -> None:
    with pytest.raises(ConfigError, match="give it targets, or use iid or shared"):
        task().split(partition, 4, seed=0)
    given = task(targets=Y).split(partition, 4, seed=0)
    also = task(train=TensorDataset(X, Y)).split(partition, 4, seed=0)
    assert [part.tolist() for part in given if part is not None] == [
        part.tolist() for part in also if part is not None
    ]


@pytest.mark.parametrize("test", [{"x": X, "y": Y}, Items(), lambda context: [{"x": X, "y": Y}]])
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
        return Evaluation(
            loss=float(batch["y"].mean()), accuracy=float((batch["y"] > 1).float().mean())
        )

    found = task(evaluation_step=evaluation_step).evaluate(nn.Linear(2, 1))
    assert found.loss == pytest.approx(1.5) and found.accuracy == pytest.approx(0.5)
    wrong: Any = lambda model, batch: 0.5  # noqa: E731
    with pytest.raises(TrainingError, match="returned a float: it must return an Evaluation"):
        task(evaluation_step=wrong).evaluate(nn.Linear(2, 1))


def test_measuring_changes_no_draw() -> None:
    model = nn.Linear(2, 1)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    task(test=Items(jitter=True)).evaluate(model)
    assert torch.equal(torch.rand(1), expected)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"training_step": None}, "neither"),
    ({"loss": nn.functional.mse_loss}, "both"),
    ({"training_step": None, "loss": nn.functional.mse_loss}, "train is a dict of x, y"),
    ({"accuracy": lambda outputs, targets: 1.0}, "give evaluation_step"),
    ({"train": {"x": X, "y": Y[:3]}}, "train has 20 of 'x', 3 of 'y'"),
    ({"train": {"x": torch.tensor(1.0)}}, "a tensor without axes"),
    ({"train": {}}, "train is a dict"),
    ({"train": []}, "train is a list"),
    ({"train": Items}, "train is a type"),
    ({"train": DataLoader(Items())}, "train is a DataLoader: .* loader of its own"),
    ({"train": Subset(Items(), [])}, "without samples"),
    ({"targets": Y[:3]}, "20 by train, 3 by targets"),
    ({"n_samples": 19}, "20 by train, 19 by n_samples"),
    ({"train": shuffled, "n_samples": 0}, "0 by n_samples"),
    ({"augment": 3}, "augment is 3: it must be a function"),
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

    def moved(prefetch: int, device: torch.device) -> Loader:
        return make_loader(
            task(), EVERYTHING, batch_size=6, seed=1, peer="a", device=device, prefetch=prefetch
        )

    expected, *found = moved(0, CPU), moved(0, gpu), moved(2, gpu)
    for at in range(5):
        batch = flat(expected.take(at))
        assert all(flat(each.take(at)) == batch for each in found)
    found[1].close()
    drawn = task(augment=lambda b: b | {"x": b["x"] + torch.randn_like(b["x"])})
    ours = [
        make_loader(drawn, EVERYTHING, batch_size=6, seed=1, peer="a", device=gpu) for _ in range(2)
    ]
    state = torch.cuda.get_rng_state(gpu)
    batches = [each.take(3)["x"] for each in ours]
    assert batches[0].is_cuda and torch.equal(*batches)
    assert torch.equal(torch.cuda.get_rng_state(gpu), state)
