"""The task ``chars``: a text cut without overlap, and a model that cannot look ahead."""

import sys
from types import ModuleType

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from rumor.gossip.errors import ConfigError
from rumor.train.tasks.data import Sampler
from rumor.train.tasks.language.char_lm import ALPHABET, chars
from rumor.train.tasks.partition import split
from rumor.train.tasks.registry import load_task
from rumor.train.tasks.task import Task


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("chars", seed=0)


def decoded(samples: torch.Tensor) -> list[str]:
    return ["".join(ALPHABET[place] for place in sample) for sample in samples.tolist()]


def with_text(monkeypatch: pytest.MonkeyPatch, topics: dict[str, str]) -> Task:
    module = ModuleType("pydoc_data.topics")
    module.topics = topics  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", module)
    return chars()


def trained(task: Task, steps: int) -> torch.nn.Module:
    torch.manual_seed(0)
    model = task.model()
    optimizer = task.optimizer(model.parameters(), task.lr)
    sampler = Sampler(torch.arange(len(task.train[0])).numpy(), task.batch_size, seed=0, peer="")
    assert task.loss is not None
    for step in range(steps):
        inputs, targets = (side[torch.from_numpy(sampler.batch(step))] for side in task.train)
        optimizer.zero_grad()
        task.loss(model(inputs), targets).backward()
        optimizer.step()
    return model


def test_targets_are_the_characters_that_follow(task: Task) -> None:
    for inputs, targets in (task.train, task.test):
        assert inputs.shape == targets.shape == (len(inputs), 32)
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
        assert inputs.min() >= 0 and inputs.max() < len(ALPHABET) and targets.max() < 96


def test_a_tenth_of_the_text_is_held_out_in_blocks_from_all_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    letters = ALPHABET[1:91]
    sample = [first + second + "-" * 31 for first in letters for second in letters]
    task = with_text(monkeypatch, {"a": "".join(sample[:2560])})
    train, test = ({text[:2] for text in decoded(side[0])} for side in (task.train, task.test))
    names = [text[:2] for text in sample[:2560]]
    assert test == {*names[1152:1280], *names[2432:]} and train == set(names) - test


def test_most_of_what_is_held_out_stands_nowhere_else(task: Task) -> None:
    seen = set(decoded(task.train[0]))
    assert sum(text in seen for text in decoded(task.test[0])) < 0.05 * len(task.test[0])


def test_topics_are_joined_by_name_and_no_paragraph_comes_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filler = "\n\n".join(f"{number:033d}" for number in range(1300))
    task = with_text(monkeypatch, {"b": f"beta\n\nboth\n\n{filler}", "a": "alpha\n\nboth"})
    assert decoded(task.train[0])[0] == "alpha\n\nboth\n\nbeta\n\n" + "0" * 13


def test_what_the_alphabet_lacks_becomes_a_question_mark_or_a_blank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = with_text(monkeypatch, {"a": "it\u2019s\ttrue\n" + "~" * 33 * 1300})
    assert decoded(task.train[0])[0].startswith("it?s true\n~~~")


def test_another_load_is_the_same_task_and_model(task: Task) -> None:
    other = load_task("chars", seed=1)
    for mine, yours in zip((*task.train, *task.test), (*other.train, *other.test), strict=True):
        assert torch.equal(mine, yours)
    one, two = trained(task, 3).state_dict(), trained(other, 3).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert sum(value.numel() for value in one.values()) == 32_736


def test_it_learns_within_a_few_steps(task: Task) -> None:
    torch.manual_seed(0)
    before, after = task.evaluate(task.model()), task.evaluate(trained(task, 60))
    assert before.accuracy is not None and after.accuracy is not None
    assert before.accuracy < 0.05 and after.accuracy > 0.22
    assert after.loss < 3.0 < before.loss


def test_the_model_does_not_look_ahead(task: Task) -> None:
    torch.manual_seed(0)
    model = task.model()
    sample = task.test[0][:4]
    changed = sample.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % len(ALPHABET)
    with torch.no_grad():
        one, other = model(sample), model(changed)
    assert torch.equal(one[:, :20], other[:, :20])
    assert not torch.equal(one[:, 20:], other[:, 20:])


@pytest.mark.filterwarnings("error")
def test_many_models_are_differentiated_at_once(task: Task) -> None:
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(task.model())
    stacked = {name: value.detach() for name, value in stack_module_state(models)[0].items()}
    inputs, targets = (side[:12].reshape(3, 4, 32) for side in task.train)
    task_loss = task.loss
    assert task_loss is not None

    def loss(
        parameters: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        return task_loss(functional_call(models[0], parameters, (inputs,)), targets)

    found = vmap(grad(loss))(stacked, inputs, targets)
    for index, model in enumerate(models):
        task_loss(model(inputs[index]), targets[index]).backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name][index], parameter.grad)


@pytest.mark.parametrize("spec", ["dirichlet:1", "shards:1"])
def test_it_cannot_be_split_by_target(task: Task, spec: str) -> None:
    with pytest.raises(ConfigError, match=r"needs one target per sample.*use iid or shared"):
        split(spec, task.train[1], 4, seed=0)


def test_more_workers_than_samples_are_told_to_share(task: Task) -> None:
    with pytest.raises(ConfigError, match="use fewer, or partition shared"):
        split("iid", task.train[1], len(task.train[1]) + 1, seed=0)
