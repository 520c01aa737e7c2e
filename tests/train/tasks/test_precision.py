"""Mixed precision: products in fewer bits, parameters in full precision."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from rumor.gossip.errors import ConfigError
from rumor.sim import SimulationConfig, simulate
from rumor.train import load_task
from rumor.train.config import RunConfig
from rumor.train.loop import learner as module
from rumor.train.loop.learner import Learner
from rumor.train.tasks.precision import autocast

DIGITS = load_task("digits", seed=0)
CPU = torch.device("cpu")


def train(precision: str, monkeypatch: pytest.MonkeyPatch, steps: int = 60) -> Learner:
    task = replace(DIGITS, precision=precision)
    monkeypatch.setattr(module, "load_task", lambda spec, seed: task)
    learner = Learner(RunConfig(device="cpu"), "a")
    for _ in range(steps):
        learner.step()
    return learner


def test_a_model_learns_in_bfloat16_and_keeps_float32_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner, full = train("bfloat16", monkeypatch), train("float32", monkeypatch)
    found, expected = (each.task.evaluate(each.model) for each in (learner, full))
    assert {p.dtype for p in learner.model.parameters()} == {torch.float32}
    assert found.accuracy is not None and found.accuracy > 0.85
    assert found.loss == pytest.approx(expected.loss, rel=0.2) and found.loss != expected.loss


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_steps_and_evaluations_use_the_same_precision(precision: str, dtype: torch.dtype) -> None:
    seen: list[torch.dtype] = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(outputs.dtype)
        return nn.functional.cross_entropy(outputs.float(), targets)

    task, model = replace(DIGITS, precision=precision, loss=loss), DIGITS.model()
    inputs, targets = task.test
    task.batch_loss(model, (inputs[:8], targets[:8])).backward()
    replace(task, batch_size=360).evaluate(model)
    assert seen == [dtype, dtype]


def test_a_run_can_choose_its_precision() -> None:
    assert Learner(RunConfig(precision="bfloat16"), "a").task.precision == "bfloat16"
    assert Learner(RunConfig(), "a").task.precision == "float32"
    named, own = (
        simulate(task=task, workers=2, steps=4, precision=precision).summary
        for task, precision in (
            ("digits", "bfloat16"),
            (replace(DIGITS, precision="bfloat16"), None),
        )
    )
    assert named["digest"] == own["digest"] and "bfloat16" in named["engine_why"]
    for config in (RunConfig, SimulationConfig):
        with pytest.raises(
            ConfigError, match="precision is 'half': it must be float32, bfloat16 or auto"
        ):
            config(precision="half")


@pytest.mark.cuda
def test_a_model_learns_in_bfloat16_on_a_gpu() -> None:
    config = RunConfig(precision="bfloat16", device="cuda")
    learner = Learner(config, "a")
    for _ in range(60):
        learner.step()
    learner.close()
    accuracy = learner.task.evaluate(learner.model).accuracy
    assert accuracy is not None and accuracy > 0.85


def test_auto_is_full_precision_on_a_cpu_and_in_simulations() -> None:
    assert isinstance(autocast("auto", CPU), nullcontext)
    digits = replace(DIGITS, precision="auto")
    runs = [simulate(task=task, workers=2, steps=10) for task in (DIGITS, digits)]
    assert runs[0].summary["digest"] == runs[1].summary["digest"]


@pytest.mark.parametrize(("has", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_is_bfloat16_on_a_gpu_that_supports_it(
    has: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: has)
    monkeypatch.setattr(torch, "autocast", lambda device, dtype: dtype)
    found = autocast("auto", torch.device("cuda"))
    assert (torch.float32 if isinstance(found, nullcontext) else found) == dtype
