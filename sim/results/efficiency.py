"""What became of the workers' time: how much of it computed, who took part, who waited how long."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...train.tasks.sources import is_pair
from ...train.tasks.task import Task
from ..batched.schedule import Ending, Reading

__all__ = ["Participation", "targets_of", "time_figures", "token_figures"]

# Of more workers, what each has done at every measurement takes too much memory.
_WORKERS_MAX: Final = 1024

_SPANS: Final = 4


class Participation:
    """Who takes part: has stepped, and exchanged, within a quarter of the run.

    Quarters in which nobody exchanged anything do not count: between two outer rounds all train
    alone, and that is no fault.
    """

    def __init__(self) -> None:
        self._readings: list[Reading] = []

    def add(self, reading: Reading) -> None:
        """Note what each worker has done by a moment; of very many, nothing is noted."""
        if len(reading.steps) <= _WORKERS_MAX:
            self._readings.append(reading)

    def figures(self) -> dict[str, float | None]:
        """Means over the quarters.

        Returns:
            ``members_taking_part``: how many workers take part; ``participation``: which part that
            is of the workers that belong to the swarm at a quarter's end. None where nobody ever
            exchanged anything, or nothing was noted.
        """
        taking, parts = [], []
        for before, after in self._spans():
            present = np.arange(len(after.steps)) if after.present is None else after.present
            exchanged = after.exchanges > before.exchanges
            if not exchanged.any() or not len(present):
                continue
            active = (exchanged & (after.steps > before.steps))[present]
            taking.append(float(active.sum()))
            parts.append(float(active.mean()))
        if not parts:
            return {"members_taking_part": None, "participation": None}
        return {
            "members_taking_part": float(np.mean(taking)),
            "participation": float(np.mean(parts)),
        }

    def _spans(self) -> Sequence[tuple[Reading, Reading]]:
        """The last measurements before and at the end of each quarter of the time."""
        if len(self._readings) < 2:
            return []
        times_s = np.array([reading.time_s for reading in self._readings])
        edges_s = times_s[-1] * np.arange(_SPANS + 1) / _SPANS
        found = np.searchsorted(times_s, edges_s, side="right") - 1
        ends = [self._readings[max(0, int(index))] for index in found]
        return [pair for pair in pairwise(ends) if pair[0] is not pair[1]]


def targets_of(task: Task) -> int:
    """What a training sample is to predict: so many tokens of a text, or one thing."""
    if not is_pair(task.train) or not len(task.train[1]):
        return 1
    targets = task.train[1]
    # Floating-point targets are one answer in several numbers; whole ones are so many classes.
    if targets.is_floating_point() or targets.ndim < 2:
        return 1
    return int(targets[0].numel())


def time_figures(
    ending: Ending, *, end_s: float, founders: int, means_s: Sequence[float]
) -> dict[str, float | None]:
    """Draw up what the workers' time went into.

    Args:
        ending: Of the run.
        end_s: Its length, virtual seconds. What failing workers did is counted until that in
            *ending*, which may be earlier.
        founders: Workers that were there at the start.
        means_s: Of each worker, what a step takes in the mean where nothing slows it, seconds.

    Returns:
        ``utilization``: of the time that processes ran, the part in which they neither waited for
        others, nor looked for a swarm, nor stood still. ``goodput``: of what the founders would
        have computed had they never failed or waited, the part that was computed and is not lost.
        ``wait_s_longest``: the longest time at a stretch that one waited for others, seconds. Both
        parts are None where no time has passed.
    """
    times = ending.times
    if not end_s:
        return {"utilization": None, "goodput": None, "wait_s_longest": None}
    lived_s = end_s * founders if times is None else times.lived_s
    unused_s = 0.0 if times is None else times.unused_s
    if times is not None and ending.fault_report is not None:
        computed_s, end_s = times.computed_s, times.until_s
    else:
        steps: NDArray[np.int64] = ending.workers["steps"]
        computed_s = float((steps * np.asarray(means_s)).sum())
    return {
        "utilization": 1 - unused_s / lived_s if lived_s else None,
        "goodput": computed_s / (end_s * founders),
        "wait_s_longest": 0.0 if times is None else times.waited_s_most,
    }


def token_figures(task: Any, steps: NDArray[np.int64], samples: Sequence[int]) -> dict[str, Any]:
    """Count what all steps together have trained on.

    Args:
        steps: Of each worker.
        samples: Of a step of each worker.

    Returns:
        ``tokens``: tokens of a text, or samples of other data; nothing where a task has no data.
    """
    if not isinstance(task, Task):
        return {}
    return {"tokens": int((steps * np.asarray(samples)).sum()) * targets_of(task)}
