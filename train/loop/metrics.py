"""Writes down how one peer's training goes."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...gossip.types import stream
from ..loggers.writer import LogWriter
from ..runtime.telling.stats import METRICS, AverageEvaluation, PeerStats
from ..storage.jsonl import JsonlLog
from ..tasks.task import Evaluation

__all__ = ["Loss", "RandomProjection", "Recorder"]

Loss = float | Tensor
"""Of a batch: a number, or a tensor with one."""

# 2 MiB of float64 at a time: nothing as large as the vector is ever made.
CHUNK_SIZE = 1 << 18


class RandomProjection:
    """A random linear map from ``n_params`` numbers to *width*, the same on every peer.

    Each coordinate is added to one bin, drawn uniformly, with a random sign. Then
    ``|of(x) - of(y)|^2`` is ``|x - y|^2`` in expectation, with a relative standard deviation
    of at most sqrt(2 / width), 9 % for 256. A vector of at most *width* numbers is its own sketch.

    The bins are drawn again at every call, because kept they would cost half as much memory
    as the model. They come from the raw words of the bit generator, which, unlike
    numpy's distributions, are the same in all its versions.

    Args:
        n_params: Numbers in the vector.
        width: Numbers in the sketch, >= 1.
        seed: Peers whose sketches are to be compared must use the same.

    Source: Charikar, Chen and Farach-Colton, ICALP 2002, with one row; the variance is in
    Weinberger et al., ICML 2009.
    """

    def __init__(self, n_params: int, width: int = 256, seed: int = 0) -> None:
        self.n_params = n_params
        self.width = width
        self.seed = seed

    def of(self, *flats: Tensor) -> list[float]:
        """Sketch a vector, whole or in flat pieces of any dtype and device.

        Returns:
            ``width`` numbers, or ``n_params`` where those are fewer; summed in float64.

        Raises:
            ValueError: The pieces have not ``n_params`` numbers together.
        """
        if (n := sum(flat.numel() for flat in flats)) != self.n_params:
            raise ValueError(f"the vector has {n} numbers, the sketch was made for {self.n_params}")
        chunks = (chunk for flat in flats for chunk in _chunks(flat.detach()))
        arrays = (chunk.cpu().to(torch.float64).numpy() for chunk in chunks)
        if self.n_params <= self.width:
            return [float(value) for array in arrays for value in array]
        words = stream(self.seed, "swarm", "sketch").bit_generator
        # Bin and sign are one draw: the coordinates with a minus have the upper half of the bins.
        sums = np.zeros(2 * self.width)
        for array in arrays:
            bins = (words.random_raw(len(array)) % np.uint64(len(sums))).astype(np.intp)
            sums += np.bincount(bins, array, len(sums))
        plus, minus = np.split(sums, 2)
        return [float(value) for value in plus - minus]


def _chunks(flat: Tensor) -> Iterator[Tensor]:
    for start in range(0, len(flat), CHUNK_SIZE):
        yield flat[start : start + CHUNK_SIZE]


class Recorder:
    """Collects figures of every step and writes a row now and then, if the disk takes it.

    Args:
        path: Where the rows go, None for nowhere.
        stats: Reads the peer's figures.
        flats: The peer's vector, whose sketch some rows have.
        log_every: Steps between two rows.
        before_s: How long earlier incarnations trained, seconds; the rows' time goes on there.
        loggers: Get the rows, too; they are opened and closed elsewhere.
    """

    def __init__(
        self,
        path: Path | None,
        stats: Callable[[], PeerStats],
        flats: Sequence[Tensor],
        log_every: int,
        *,
        before_s: float = 0.0,
        loggers: LogWriter | None = None,
    ) -> None:
        self._rows = JsonlLog(path)
        self._loggers = loggers
        self._stats, self._flats = stats, flats
        self._log_every = log_every
        self._seconds: dict[str, list[float]] = {"step_s": [], "own_s": []}
        self._losses: Loss = 0.0
        self._losses_count = 0
        self._projection = RandomProjection(sum(flat.numel() for flat in flats))
        self._mixed, self._staleness_steps = 0, 0
        self._started_s = time.perf_counter() - before_s

    @property
    def elapsed_s(self) -> float:
        """How long it has been training, earlier incarnations included, seconds."""
        return time.perf_counter() - self._started_s

    def is_due(self, step: int) -> bool:
        """Whether a step has a row in any case."""
        return step % self._log_every == 0 or step == 1

    def note(self, loss: Loss | None, step_s: float, exchange_s: float) -> None:
        """Count a step into the next row: its loss and seconds.

        *exchange_s* went to pushing, mixing and waiting for others. A loss that is a tensor is read
        where the row is written, so that a GPU is not waited for in each step.
        """
        if loss is not None:
            self._losses = self._losses + (loss.detach() if isinstance(loss, Tensor) else loss)
            self._losses_count += 1
        for name, seconds in (("step_s", step_s), ("own_s", step_s - exchange_s)):
            self._seconds[name].append(seconds)

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def write(
        self,
        step: int,
        *,
        lr: float | None = None,
        evaluation: Evaluation | None = None,
        averaged: AverageEvaluation | None = None,
        sketched: bool = False,
    ) -> None:
        """Write a row about the steps since the last one, of which *step* was the last.

        *lr* is its learning rate; *evaluation* is of the model after it, *averaged* of the average
        of all peers; *sketched* adds a sketch of the model, which takes a pass over it.
        """
        loss = float(self._losses) / self._losses_count if self._losses_count else None
        self._losses, self._losses_count = 0.0, 0
        stats = self._stats()
        counters = stats.counters
        mixed = counters.mixed - self._mixed
        staleness_steps = counters.staleness_steps - self._staleness_steps
        self._mixed, self._staleness_steps = counters.mixed, counters.staleness_steps
        row = {
            "step": step,
            "swarm_steps": stats.swarm_steps,
            "lr": lr,
            "time_s": self.elapsed_s,
            "unix_s": time.time(),
            **{name: metric.get(stats) for name, metric in METRICS.items()},
            "loss": loss,
            "accuracy": evaluation.accuracy if evaluation else None,
            "test_loss": evaluation.loss if evaluation else None,
            "staleness_steps": staleness_steps / mixed if mixed else None,
            **self._durations("step_s"),
            # What it took beside the exchange, which under a synchronous rule is mostly waiting.
            **self._durations("own_s"),
            "sketch": self._projection.of(*self._flats) if sketched else None,
            **(averaged.as_row() if averaged else {}),
        }
        self._rows.write(row)
        if self._loggers is not None:
            self._loggers.log(stats.id, row)

    def _durations(self, name: str) -> dict[str, float | None]:
        """Mean and standard deviation, seconds, since the row before."""
        seconds, self._seconds[name] = self._seconds[name], []
        if not seconds:
            return {name: None, f"{name}_sd": None}
        return {name: float(np.mean(seconds)), f"{name}_sd": float(np.std(seconds))}
