"""Studies whose trials take a moment: averaging of plain vectors, without a model."""

from pathlib import Path
from typing import Any

from rumor.sim.study.study import Axis, Point, Study

__all__ = ["OWN_STUDY", "TOML", "grid_of", "own_task", "small_study", "tables_of"]

TOML = """
title = "A small one"
question = "Does it matter?"
seeds = 2

[settings]
task = "consensus"
workers = 8
steps = 20
p = 0.5

[grid]
topology = ["ring", "complete"]
"""
"""A study file with four trials."""


OWN_STUDY = """
seeds = 3
[settings]
task = "own:make"
workers = 2
steps = 3
[grid]
topology = ["ring"]
"""
"""A study of `own_task`: three trials."""


def own_task(act: str) -> str:
    """Source of a module with a task, whose loss first runs the statement *act* (with *seed*)."""
    return f"""
import os, signal, time, torch
from rumor.train.tasks.task import Task
def make(seed):
    x = torch.ones(32, 2)
    def loss(outputs, targets):
        {act}
        return ((outputs - targets) ** 2).mean()
    return Task(name="own", model=lambda: torch.nn.Linear(2, 1), train=(x, x[:, :1]),
                test=(x, x[:, :1]), loss=loss, lr=0.01, batch_size=4, steps=5)
"""


def small_study(*, seeds: int = 2, topology: Any = ("ring", "complete"), **settings: Any) -> Study:
    """A study of averaging that compares topologies."""
    usual = {"task": "consensus", "workers": 8, "steps": 20, "p": 0.5}
    return grid_of(
        {"topology": {spec: {"topology": spec} for spec in topology}},
        settings=usual | settings,
        seeds=seeds,
    )


def grid_of(
    axes: dict[str, dict[str, dict[str, Any]]], *, settings: dict[str, Any], seeds: int = 2
) -> Study:
    """A study of these points: axis by axis, by their labels."""
    made = (
        Axis(name, tuple(Point(label, given) for label, given in points.items()))
        for name, points in axes.items()
    )
    words: Any = {"name": "small", "title": "A small one", "question": ""}
    return Study(**words, settings=settings, axes=tuple(made), seeds=tuple(range(seeds)))


def tables_of(folder: Path) -> tuple[bytes, ...]:
    """Both tables of a study's folder, to the byte."""
    return tuple((folder / name).read_bytes() for name in ("curves.csv", "summary.csv"))
