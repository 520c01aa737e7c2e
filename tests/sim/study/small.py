"""Studies whose trials take a moment: averaging of plain vectors, without a model."""

from pathlib import Path
from typing import Any

from rumor.sim.study.study import Axis, Point, Study

__all__ = ["TOML", "small_study", "tables_of"]

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
"""A study as a file has it: four trials."""


def small_study(*, seeds: int = 2, topology: Any = ("ring", "complete"), **settings: Any) -> Study:
    """A study of averaging: what is compared is the topology."""
    usual = {"task": "consensus", "workers": 8, "steps": 20, "p": 0.5}
    points = tuple(Point(spec, {"topology": spec}) for spec in topology)
    return Study(
        name="small",
        title="A small one",
        question="",
        settings=usual | settings,
        axes=(Axis("topology", points),),
        seeds=tuple(range(seeds)),
    )


def tables_of(folder: Path) -> tuple[bytes, ...]:
    """Both tables of a study's folder, to the byte."""
    return tuple((folder / name).read_bytes() for name in ("curves.csv", "summary.csv"))
