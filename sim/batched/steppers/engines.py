"""Which way steps are computed, and why."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch.random import fork_rng

from ....gossip import PeerId
from ....gossip.errors import ConfigError
from ....train.tasks.random_state import kept_random_state
from ....train.tasks.task import Task
from ...kernel.program import Level
from ..batches import Batches
from ..compiled.row_passes import alike
from ..cores import Cores
from ..parameters import CPU, ParameterMatrix
from .batched import BatchedStepper
from .gradients import Gradient, unbatchable
from .loop import LoopStepper
from .stepper import Failures, Stepper

__all__ = ["Choice", "Way", "Workshop", "alone", "choose", "one_thread_each"]


# Enough workers for batching to show what it can; a model of more than a million numbers gains
# nothing by it and is not tried.
_WORKERS = 64
_BYTES_MAX = 1 << 23
_STEPS = 2
_TIMES = 5

_OTHER_BITS = "batching would give other bits than one by one"

Way = Callable[[ParameterMatrix, Failures], Stepper]
"""Makes what takes the steps of these rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What every way to compute needs."""

    make_rows: Callable[[int], ParameterMatrix]
    """Fresh values for so many workers, all at the model's start."""
    task: Task
    batches: Batches
    lr: float
    ids: tuple[PeerId, ...]
    seed: int
    cores: Cores
    """What to use."""
    device: torch.device = CPU
    """Where the rows of `make_rows` and the batches lie."""
    gradients: dict[bool, Gradient] = field(default_factory=dict)
    """What was recorded for the first rows, and serves others; by whether it is done one by one."""

    def loop(self, rows: ParameterMatrix, failures: Failures) -> Stepper:
        """One step after another."""
        return LoopStepper(
            rows,
            self.task,
            self.batches,
            self.lr,
            self.ids,
            self.seed,
            failures,
            threads=self.cores.n,
        )

    def batched(
        self,
        rows: ParameterMatrix,
        failures: Failures,
        *,
        dense: bool = False,
        apart: bool = False,
    ) -> Stepper:
        """Many steps at once."""
        if self.cores.compiled:
            rows.compile_passes(self.cores)
        stepper = BatchedStepper(
            rows,
            self.task,
            self.batches,
            self.lr,
            failures,
            self.cores,
            gradient=self.gradients.get(apart),
            dense=dense,
            apart=apart,
        )
        self.gradients[apart] = stepper.gradient
        return stepper

    def apart(self, rows: ParameterMatrix, failures: Failures) -> Stepper:
        """The operations of many steps, each for one worker after another."""
        return self.batched(rows, failures, apart=True)

    def in_machine_code(self, rows: ParameterMatrix, failures: Failures) -> Stepper:
        """Whole steps in machine code, one worker after another."""
        return self.batched(rows, failures, dense=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A way to compute, and why it was taken."""

    name: str
    make: Way
    why: str


def choose(engine: str, workshop: Workshop) -> Choice:
    """Take the way that was asked for, or find the faster of those that give the same bits.

    What ``auto`` takes changes no bit: where batching gives other bits than the loop it is only
    used when asked for. On a device other than the CPU, where all bits are others, it batches
    whatever can be batched.

    Args:
        engine: One of ``ENGINES``.

    Raises:
        ConfigError: The task cannot be computed in the way that was asked for.
    """
    if engine == "loop":
        return Choice(name="loop", make=workshop.loop, why="asked for")
    if engine == "batched":
        make, why = _batched(workshop)
        if make is None:
            raise ConfigError(
                f"engine batched cannot take the task {workshop.task.name}: {why}. "
                "Leave --engine out, or take loop"
            )
        return Choice(name="batched", make=make, why="asked for")
    if workshop.device == CPU:
        return _probe(workshop)
    make, why = _batched(workshop)
    if make is None:
        return Choice(name="loop", make=workshop.loop, why=f"the task cannot be batched: {why}")
    return Choice(name="batched", make=make, why=f"rows lie on {workshop.device}")


def _batched(workshop: Workshop) -> tuple[Way | None, str]:
    """The best way to batch, whatever bits it gives; else why there is none."""
    if why := _cannot(workshop):
        return None, why
    found = _with_loops_bits(workshop) if workshop.device == CPU else None
    return found or workshop.batched, ""


def _probe(workshop: Workshop) -> Choice:
    why, make = _why_not_batched(workshop), None
    if not why:
        make = _with_loops_bits(workshop)
        why = _OTHER_BITS
    if make is None:
        return Choice(name="loop", make=workshop.loop, why=why)
    n = _trial_size(workshop)
    ways = (workshop.loop, make)
    (looped, looped_s), (batched, batched_s) = (
        _trial(workshop, way, range(n), _TIMES) for way in ways
    )
    if not _alike(looped, batched):
        return Choice(name="loop", make=workshop.loop, why=_OTHER_BITS)
    gain = looped_s / batched_s
    if gain <= 1.0:
        why = f"batching is no faster for this model ({gain:.2f}x)"
        return Choice(name="loop", make=workshop.loop, why=why)
    why = f"the same bits as one by one, {gain:.1f}x as fast in a trial"
    return Choice(name="batched", make=make, why=why)


def _why_not_batched(workshop: Workshop) -> str:
    """Why batching is out of the question, whatever bits it would give."""
    if len(workshop.ids) < 2:
        return "there is one worker"
    if _trial_size(workshop) < 2:
        return "the model is too large to batch"
    why = _cannot(workshop)
    return f"the task cannot be batched: {why}" if why else ""


def _with_loops_bits(workshop: Workshop) -> Way | None:
    """The fastest way to batch that gives the loop's bits in a few steps of a few workers."""
    workers = _witnesses(workshop)
    looped, _ = _trial(workshop, workshop.loop, workers, _STEPS)
    ways: list[Way] = [workshop.in_machine_code, workshop.batched, workshop.apart]
    if workshop.cores.compiled:
        # Passes in machine code may be what rounds otherwise.
        plain = _without_machine_code(workshop)
        ways += [plain.batched, plain.apart]
    for make in ways:
        try:
            rows, _ = _trial(workshop, make, workers, _STEPS)
        except Exception:  # the task is of another kind, or a library has something against it
            continue
        if _alike(looped, rows):
            return make
    return None


def _without_machine_code(workshop: Workshop) -> Workshop:
    return replace(workshop, cores=workshop.cores._replace(compiled=False))


def _witnesses(workshop: Workshop) -> list[int]:
    """Workers whose bits stand for those of all: a group of three, which is odd and small, so that
    what differs there differs everywhere, and one of each size of a batch, by which kernels differ.
    """
    few = max(1, min(_trial_size(workshop), 3))
    sizes = workshop.batches.sizes(np.arange(len(workshop.ids)))
    return sorted({*range(few), *np.unique(sizes, return_index=True)[1].tolist()})


def _trial_size(workshop: Workshop) -> int:
    row_bytes = sum(part.nbytes for part in workshop.make_rows(1).x)
    return min(len(workshop.ids), _WORKERS, _BYTES_MAX // row_bytes)


def _cannot(workshop: Workshop) -> str:
    """Why batching does not work on this task, or nothing."""
    rows = workshop.make_rows(min(2, len(workshop.ids)))
    if why := unbatchable(rows, workshop.task):
        return why
    try:
        plain = _without_machine_code(workshop)
        _take(plain.batched(rows, Failures()), range(rows.n), 0)
    except Exception as error:  # whatever a user's model does when its step is traced
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        return f"its step cannot be traced ({said})"
    return ""


def _trial(
    workshop: Workshop, make: Way, workers: Sequence[int], steps: int
) -> tuple[ParameterMatrix, float]:
    """Take a few steps in one way; returns the rows, and what the fastest took, seconds."""
    rows = workshop.make_rows(max(workers) + 1)
    stepper, taken_s = make(rows, Failures()), []
    try:
        for step in range(steps):
            start_s = time.perf_counter()
            _take(stepper, workers, step)
            taken_s.append(time.perf_counter() - start_s)
    finally:
        stepper.close()
    return rows, min(taken_s)


def _alike(ours: ParameterMatrix, theirs: ParameterMatrix) -> bool:
    """Whether two sets of rows are the same in every bit."""
    each = zip((*ours.x, *ours.locals), (*theirs.x, *theirs.locals), strict=True)
    return all(alike(a, b) for a, b in each)


def _take(stepper: Stepper, workers: Sequence[int], step: int) -> None:
    level, n = Level(), len(workers)
    level.workers, level.steps, level.orders = list(workers), [step] * n, list(range(n))
    stepper.take(level)


_ALONE = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Let one thread at a time in, and leave all random numbers of the caller as they were.

    Torch's, numpy's and Python's generators, and torch's number of threads, belong to the process.
    """
    # A GPU that nobody has used yet has drawn nothing.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with _ALONE, fork_rng(devices=devices), kept_random_state(), one_thread_each():
        yield


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let torch compute every operation on the thread that asks for it, inside.

    A sum that is shared among threads is rounded otherwise, and each worker's arithmetic is too
    small to be worth sharing.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
