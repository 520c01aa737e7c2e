"""Measure what simulations take, and write the table of docs/how-to/simulate.md.

``make costs``, from the root of the repository; it takes about ten minutes. Each run is a process
of its own; ``python docs/scripts/costs.py MODEL WORKERS`` is one, and prints a JSON object.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import PIPE, run
from typing import Any

import torch
from torch import nn

from rumor.gossip import ConfigError
from rumor.sim import simulate
from rumor.sim.batched.schedule import Cost, Progress
from rumor.train import Task, load_task
from rumor.train.storage.environment import processor

__all__ = ["MARKERS", "MODELS", "PAGE", "WORKERS", "cell", "main", "measured", "task_of"]

PAGE = Path("docs/how-to/simulate.md")
MARKERS = "<!-- Written by `make costs` -->\n", "<!-- Until here -->"

WORKERS = 30, 300, 1000

_LASTS_S = 10.0


def perceptron(hidden: int) -> nn.Module:
    """Make a multilayer perceptron for the images of ``digits``."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def convolutional(channels: int) -> nn.Module:
    """Make a convolutional network for the images of ``digits``."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * channels, 10),
    )


MODELS: Mapping[str, Callable[[], nn.Module] | str] = {
    "perceptron, one hidden layer of 32": partial(perceptron, 32),
    "perceptron, one hidden layer of 1,070": partial(perceptron, 1070),
    "perceptron, one hidden layer of 13,333": partial(perceptron, 13_333),
    "two convolutions, 8 and 16 channels": partial(convolutional, 8),
    "two convolutions, 64 and 128 channels": partial(convolutional, 64),
    "transformer, 16 samples of 128 bytes": "code-120k",
    "transformer, 16 samples of 128 bytes, larger": "code-800k",
}
"""Models, or names of tasks, by what the table calls them."""


def main() -> None:
    """Measure everything, and write the table."""
    header = ["model", "parameters", "engine", *(f"{n:,} workers" for n in WORKERS)]
    lines = [header, ["---", "---:", "---", *("---:" for _ in WORKERS)]]
    for model in MODELS:
        found = [_apart(model, workers) for workers in WORKERS]
        first = next(filter(None, found))
        lines.append([model, f"{first['n_params']:,}", first["engine"], *map(cell, found)])
        print(lines[-1], file=sys.stderr)
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    cores = f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}"
    where = f"Steps/s of all workers together, and peak memory, on {cores}:\n"
    page = PAGE.read_text(encoding="utf-8")
    (head, rest), (begin, end) = page.split(MARKERS[0]), MARKERS
    PAGE.write_text(f"{head}{begin}\n{where}\n{table}\n{end}{rest.partition(end)[2]}", "utf-8")


def cell(found: Mapping[str, Any] | None) -> str:
    """Return a cell of the table."""
    if found is None:
        return "does not fit"
    return f"{found['steps_per_s']:,.0f}, {found['peak_rss_mib'] / 1024:.1f} GiB"


def task_of(model: str) -> Task:
    """Return the task that trains a model of `MODELS`."""
    made = MODELS[model]
    if isinstance(made, str):
        return load_task(made, seed=0)
    return replace(load_task("digits", seed=0), name=model, model=made)


def measured(model: str, workers: int, lasts_s: float = _LASTS_S) -> Mapping[str, Any] | None:
    """Simulate for about *lasts_s* seconds with two measurements, and return the summary; None if
    it does not fit into memory."""
    settings = {"task": task_of(model), "workers": workers, "tested": 64, "workers_tested": 0}
    costs: list[Cost] = []

    def note(progress: Progress) -> None:
        if progress.cost is not None:
            costs.append(progress.cost)

    try:
        simulate(steps=2, progress=note, **settings)
        steps = max(2, round(lasts_s * costs[0].steps_per_s / workers))
        return simulate(steps=steps, eval_every=steps, **settings).summary
    except ConfigError:
        return None


def _apart(model: str, workers: int) -> Mapping[str, Any] | None:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, model, str(workers)]
    found: Mapping[str, Any] | None = json.loads(run(command, stdout=PIPE, check=True).stdout)
    return found


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
