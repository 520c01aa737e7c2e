"""Tasks whose peers measure next to nothing at their end: for eight peers on two cores that would
take longer than a minute, and what a storm has come to is measured once, on all of it.

Peers find a copy of this file in their working directory: to them, all benchmarks would be a second
of imports. So nothing but what peers have loaded anyway is imported here.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from torch import Tensor

from rumor.train.tasks.registry import load_task
from rumor.train.tasks.task import Task

__all__ = ["code_3m", "lean", "lean_spec"]

_SAMPLES: Final = 8

_MODULE: Final = "storm_task"
_LEAN: Final = {"code-3.3m": "code_3m"}


def lean(spec: str, *, seed: int) -> Task:
    """Build a task with a few held-out samples only.

    Args:
        spec: As `load_task` takes it.
        seed: The run's.

    Returns:
        The task; as it is, where its held-out data are no tensors.
    """
    task = load_task(spec, seed=seed)
    if isinstance(task.test, tuple) and all(isinstance(each, Tensor) for each in task.test):
        return replace(task, test=tuple(each[:_SAMPLES] for each in task.test))
    return task


def code_3m() -> Task:
    """``code-3.3m``, of whose held-out samples peers measure eight."""
    return lean("code-3.3m", seed=0)


def lean_spec(spec: str, folder: Path) -> str:
    """What peers are told in place of a task whose held-out data take long.

    Args:
        spec: As people type it.
        folder: Their working directory, into which this file is copied.

    Raises:
        OSError: It cannot be.
    """
    if spec not in _LEAN:
        return spec
    (folder / f"{_MODULE}.py").write_text(Path(__file__).read_text())
    return f"{_MODULE}:{_LEAN[spec]}"
