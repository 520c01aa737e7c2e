"""Rows on another device: everything is moved there, and results match those of the CPU.

A foreign device stands in for a GPU, so that all of this runs everywhere; a GPU is tried where
there is one.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError
from rumor.gossip.rules.registry import RULES
from rumor.sim import Run, simulate
from rumor.sim.batched.values import check_memory
from rumor.sim.config import SimulationConfig
from rumor.train.tasks.registry import load_task
from rumor.train.tasks.task import Task

from ...faults import fault
from ...rules import fitting
from .foreign_device import NAME, ForeignDevice

SETTINGS: dict[str, Any] = {
    "task": "digits",
    "workers": 6,
    "topology": "exponential",
    "steps": 5,
    "eval_every": 3,
    "pace": "lognormal:cv=0.5",
    "latency_s": 0.03,
    "seed": 4,
    "threads": 1,
}


def check_close(run: Run, plain: Run) -> None:
    assert run.model is not None and plain.model is not None
    for name, tensor in plain.model.items():
        torch.testing.assert_close(run.model[name], tensor, rtol=1e-5, atol=1e-6)
    assert run.series.keys() == plain.series.keys()
    for name, curve in plain.series.items():
        np.testing.assert_allclose(run.series[name], curve, rtol=1e-4, atol=1e-6)
    for name, column in plain.workers.items():
        assert np.array_equal(run.workers[name], column)


CASES: dict[str, dict[str, Any]] = {
    **{rule: fitting(rule) for rule in RULES},
    "gosgd": {"p": 0.7, "decide": "auto"},
    "protocols": {"p": 0.7, "decide": "protocol"},
    "bfloat16": {"p": 0.7, "wire": "bfloat16"},
    "topk": {"p": 0.7, "wire": "topk:0.1"},
    "shards": {"p": 0.7, "shards": 3},
    "crash": {
        "p": 0.7,
        "steps": 60,
        "timing": "local",
        "checkpoint_every_s": 1.0,
        "faults": [fault(2, "crash", 2), fault(3, "restart", 2)],
    },
}


@pytest.mark.extended
@pytest.mark.parametrize("case", CASES)
def test_steps_on_a_device_match_the_cpu(case: str) -> None:
    settings = SETTINGS | CASES[case]
    plain = simulate(**settings, engine="dense")
    with ForeignDevice():
        run = simulate(**settings, device=NAME)
    assert run.summary["engine"] == "dense"
    check_close(run, plain)


@pytest.mark.extended
def test_the_loop_on_a_device_gives_the_same_bits_and_names_the_device() -> None:
    settings = SETTINGS | {"p": 0.7, "engine": "loop"}
    plain = simulate(**settings)
    with ForeignDevice():
        run = simulate(**settings, device=NAME)
    assert plain.summary["device"] == "cpu"
    assert run.summary["device"] == NAME
    assert run.summary["digest"] == f"{NAME}:{plain.summary['digest']}"
    assert run.summary["model_digest"] == plain.summary["model_digest"]


@pytest.mark.extended
@pytest.mark.parametrize("name", ["normalized", "dropped"])
def test_other_models_are_vmapped_on_a_device(name: str) -> None:
    settings = SETTINGS | {"task": f"tests.sim.batched.test_device:{name}", "workers": 2}
    with ForeignDevice():
        run = simulate(**settings, device=NAME)
    assert run.summary["engine"] == "vmap"
    check_close(run, simulate(**settings))


def normalized(seed: int) -> Task:
    return with_layer(seed, lambda: nn.BatchNorm1d(8))


def dropped(seed: int) -> Task:
    return with_layer(seed, lambda: nn.Dropout(0.5))


def with_layer(seed: int, layer: Callable[[], nn.Module]) -> Task:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 8), layer(), nn.Linear(8, 10))

    return replace(load_task("digits", seed=seed), name="layers", model=model)


@pytest.mark.parametrize("name", ["cuda:99", "xyz", "meta"])
def test_a_missing_device_is_refused_before_anything_starts(name: str) -> None:
    with pytest.raises(ConfigError, match=f"device is '{name}', which is not available") as caught:
        simulate(**SETTINGS, device=name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", ["consensus", "noise"])
def test_a_task_without_a_model_stays_on_the_cpu(task: str) -> None:
    with pytest.raises(ConfigError, match="has no model"):
        simulate(task=task, workers=4, steps=2, device="cuda")
    assert simulate(task=task, workers=4, steps=2, device="auto").summary["device"] == "cpu"


def test_rows_may_take_the_free_memory_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 1 << 31))
    check = partial(check_memory, registers=0, device=torch.device("cuda", 1))
    assert check(SimulationConfig(workers=1000), row_bytes=1 << 17) == pytest.approx(5000 / 8192)
    with pytest.raises(ConfigError, match=r"more than the 1\.0 GiB that cuda:1 has free"):
        check(SimulationConfig(workers=2000), row_bytes=1 << 17)
    with pytest.raises(ConfigError, match="memory_gib allows"):
        check(SimulationConfig(workers=1000, memory_gib=0.5), row_bytes=1 << 17)


@pytest.mark.cuda
@pytest.mark.parametrize("engine", ["auto", "loop"])
def test_cuda_matches_the_cpu_except_for_the_last_digits(engine: str) -> None:
    settings = SETTINGS | {"p": 0.7, "steps": 20}
    plain = simulate(**settings)
    run = simulate(**settings, engine=engine, device="cuda")
    assert run.summary["digest"].startswith("cuda:")
    assert run.summary["device"] == "cuda:0"
    assert run.model is not None and plain.model is not None
    for name, tensor in plain.model.items():
        torch.testing.assert_close(run.model[name], tensor, rtol=1e-3, atol=1e-4)
    for name in ("pushes", "mixed", "messages", "bytes_sent"):
        assert np.array_equal(run.series[name], plain.series[name])
