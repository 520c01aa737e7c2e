"""Tasks without a model: plain vectors that are averaged, or that noise drives apart."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ...gossip import PeerId, Schema, TensorSpec, stream
from ...gossip.effects.effects import X
from ...gossip.effects.registers import is_pattern
from ...gossip.errors import ConfigError, TrainingError
from ...gossip.wire.formats import NATIVE, parse_wire
from ...gossip.wire.schema import HASH_BYTES
from ..kernel.fast_path.levels import AnyLevel, ColumnLevel
from ..kernel.program import (
    Combine,
    Exchange,
    Forge,
    Keep,
    Mix,
    Operation,
    Release,
    SlotPart,
    Snapshot,
    Start,
)
from .compiled.row_passes import RowPasses, over_vectors
from .shares import Rows, Segments, Shares, always_there, rows_of
from .steppers.stepper import WorkerCheckpoints

__all__ = ["VECTOR_TASKS", "VectorRows", "VectorTask", "consensus", "noise"]

DIM = 8
STEPS = 200
LR = 0.1

# Draws made at a time: a stream costs 20 us to open, and a call as much as eight numbers.
_STEPS_AT_ONCE = 16

Array = NDArray[np.float64]

Present = NDArray[np.int64] | None
"""Workers that belong to the swarm, and so count, ascending; None for all."""

Moment = Literal["now", "after the step", "after the round"]

Gradient = Callable[[Array, NDArray[np.int64]], Array]
"""Given vectors of some workers, float64, axes ``(worker, dim)``, and which workers these are: the
gradient of each one's own objective at its vector, of the same shape."""

Objective = Callable[[Array], float]
"""Given the mean of all vectors, float64, axes ``(dim,)``: what is to be small."""


class VectorTask:
    """Vectors in the place of models.

    Args:
        name: What to call it.
        dim: Numbers in each worker's vector.
        values: What workers start from, float64, axes ``(worker, dim)``; drawn from a standard
            normal distribution unless given, or zeros where there is noise.
        noise: Standard deviation of what each step adds to each number.
        gradient: Down which each step goes; nowhere unless given.
        objective: Measured at the mean of all vectors, as a run's ``loss``.
        lr: Learning rate of the steps along the gradient.

    Raises:
        ConfigError: The values are not finite, or not of that form.
    """

    def __init__(
        self,
        name: str,
        *,
        dim: int = DIM,
        values: ArrayLike | None = None,
        noise: float = 0.0,
        gradient: Gradient | None = None,
        objective: Objective | None = None,
        lr: float = LR,
    ) -> None:
        self.name = name
        self.noise = noise
        self.gradient = gradient
        self.objective = objective
        self.lr = lr
        self.steps = STEPS
        self._values = None if values is None else _checked(values)
        self.dim = dim if self._values is None else self._values.shape[1]
        if self.dim < 1:
            raise ConfigError(f"dim is {self.dim}: it must be at least 1")

    def start(self, ids: Sequence[PeerId], seed: int) -> Array:
        """What the workers start from, float64, axes ``(worker, dim)``.

        Raises:
            ConfigError: There are vectors for another number of workers.
        """
        if self._values is not None:
            if len(self._values) != len(ids):
                raise ConfigError(
                    f"task {self.name} has {len(self._values)} vectors for {len(ids)} workers"
                )
            return self._values.copy()
        if self.noise:
            return np.zeros((len(ids), self.dim))
        return stream(seed, "swarm", "values").standard_normal((len(ids), self.dim))


def consensus(values: ArrayLike | None = None, *, dim: int = DIM) -> VectorTask:
    """Pure averaging: steps change nothing, and all there is to see is how workers agree.

    Args:
        values: A vector for each worker, axes ``(worker, dim)``; drawn unless given.
        dim: Numbers in each, where they are drawn.
    """
    return VectorTask("consensus", dim=dim, values=values)


def noise(*, dim: int = DIM) -> VectorTask:
    """Unit Gaussian steps instead of gradients, from zero.

    What mixing takes away and noise brings in balance at a *stationary* disagreement.

    Args:
        dim: Numbers in each vector; they are independent, so that more make a steadier mean.

    Source: Blot, Picard, Cord and Thome 2016, section on consensus under noise.
    """
    return VectorTask("noise", dim=dim, noise=1.0)


VECTOR_TASKS: Mapping[str, Callable[[], VectorTask]] = MappingProxyType(
    {"consensus": consensus, "noise": noise}
)
"""The functions behind the names that people type."""


class VectorRows:
    """The vectors of all workers, one row each, and the shares under way.

    Args:
        task: What they start from, and what steps add.
        registers: Vectors that the rule keeps beside ``x``; they start as zeros.
        counts: Which moment counts for the disagreement: "now", that right after each worker's
            last step, or that at which its last round of averaging ended.
        shards: How many each vector is cut into.
        scattered: Whether each has lines from all over it.
        wire: Format in which shares travel. The anchor is zero.
        compiled: Whether machine code may pass over the rows.
        lr: Learning rate; the task's unless given.

    Raises:
        ConfigError: There are more shards than a vector has cache lines.
    """

    name = "vectors"

    def __init__(
        self,
        task: VectorTask,
        ids: Sequence[PeerId],
        seed: int,
        registers: Sequence[str] = (),
        *,
        counts: Moment = "now",
        shards: int = 1,
        scattered: bool = False,
        wire: str = NATIVE,
        compiled: bool = False,
        lr: float | None = None,
    ) -> None:
        self.task = task
        self._lr = lr or task.lr
        self.schema = Schema((TensorSpec("x", (task.dim,), "float64"),), shards, scattered)
        start = task.start(ids, seed)
        n_padded = self.schema.share_bytes // start.itemsize
        # Of torch, which begins at a cache line.
        self._padded: Array = torch.zeros(
            len(ids), n_padded, dtype=torch.float64, device="cpu"
        ).numpy()
        self.x = self._padded[:, : task.dim]
        """float64, axes ``(worker, dim)``."""
        self.x[:] = start
        self._counts = counts
        self.counted = self.x if counts == "now" else self.x.copy()
        """Each worker's vector as it was at the moment that counts."""
        self.n_params = task.dim
        self.anchor = blake2b(f"{task.name} {task.dim}".encode(), digest_size=HASH_BYTES).digest()
        zeros = {name: np.zeros_like(self._padded) for name in always_there(registers)}
        padded = zeros | {X: self._padded}
        self._registers = {name: rows[:, : task.dim] for name, rows in padded.items()}
        self._slots: dict[int, tuple[Array, ...]] = {}
        """Shares under way: each register's numbers."""
        self._all, self._names = padded, tuple(registers)
        self._rows: Rows | None = None
        is_native = parse_wire(wire).is_native and not any(map(is_pattern, registers))
        is_plain = shards == 1 and is_native
        self._shares: Shares | None = None
        if not is_plain:
            # On padded rows, as for models.
            rows = self._each()
            self._shares = Shares(self.schema, rows, (torch.zeros_like(rows[X][0][0]),), ids, seed)
        self._segments = Segments()
        self._checkpoints: WorkerCheckpoints | None = None
        self._compiled = compiled
        self._passes: RowPasses | None = None
        self._steps = [_draws(seed, id, task.dim) for id in ids] if task.noise else []

    def live_again(self) -> None:
        """Make ready for workers that crash and come back; called before the first step."""
        self._checkpoints = WorkerCheckpoints(self._each(), alike=False)
        if self._shares is not None:
            self._shares.begin_again = self._begin_again

    def _each(self) -> Rows:
        """Each worker's vectors, padded, as those of models are."""
        if self._rows is None:
            parts = {name: (torch.from_numpy(rows),) for name, rows in self._all.items()}
            self._rows = rows_of(parts, self._names)
        return self._rows

    def _note_copy(self, worker: int) -> None:
        """A newcomer counts from its copy on: what it had before is nobody's model."""
        if self._checkpoints is not None:
            self.counted[worker] = self.x[worker]

    def _begin_again(self, operation: Keep | Start) -> None:
        assert self._checkpoints is not None
        self._checkpoints.carry_out(operation)
        if isinstance(operation, Start):
            self.counted[operation.worker] = self.x[operation.worker]

    def execute(self, levels: Iterable[AnyLevel]) -> None:
        """Take the steps of one level after another, and do what follows each."""
        for level in levels:
            self._take_steps(level.workers)
            if self._counts == "after the step":
                self.counted[level.workers] = self.x[level.workers]
            if self._shares is None and isinstance(level, ColumnLevel):
                if self._passes is None:
                    self._passes = RowPasses(self._padded, over_vectors(compiled=self._compiled))
                self._passes.carry_out(level.rows, level.fractions)
            elif self._shares is None:
                if self._passes is not None:
                    # The protocols have taken over.
                    self._slots = {
                        slot: (values[: self.task.dim],)
                        for slot, values in self._passes.left().items()
                    }
                    self._passes = None
                self._carry_out(level.operations)
            else:
                self._carry_out_with(self._shares, level.operations)

    def _take_steps(self, workers: Sequence[int]) -> None:
        if self.task.gradient is not None and len(workers):
            which = np.asarray(workers, np.int64)
            self.x[which] -= self._lr * self.task.gradient(self.x[which], which)
        if self.task.noise:
            for worker in workers:
                self.x[worker] += next(self._steps[worker])

    def measure(self, levels: Iterable[AnyLevel], worker: int, slots: Sequence[int]) -> list[float]:
        """Do what was scheduled, and see how far shares then are from a worker's vector."""
        self.execute(levels)
        if self._shares is not None:
            return [self._shares.distance(worker, slot) for slot in slots]
        apart = [self._slots[slot][0] - self.x[worker] for slot in slots]
        return [math.sqrt(float(np.square(each).sum())) for each in apart]

    def _carry_out_with(self, shares: Shares, operations: Sequence[Operation]) -> None:
        """Do what was scheduled where vectors are cut, or do not travel as they are."""
        for operation in operations:
            if shares.carry_out((operation,)):
                raise TrainingError(
                    f"a value of the task {self.task.name} does not fit into the wire's format"
                )
            match operation:
                case Combine(worker, register) if register == X:
                    if self._counts == "after the round":
                        self.counted[worker] = self.x[worker]
                case Mix(worker, _, fraction) if fraction == 1.0:
                    self._note_copy(worker)

    def _carry_out(self, operations: Sequence[Operation]) -> None:
        """Do what was scheduled, on vectors that travel whole and as they are."""
        slots, x = self._slots, self.x
        for operation in operations:
            match operation:
                case Mix(worker, slot, fraction):
                    row = x[worker]
                    if fraction == 1.0:
                        row[:] = slots[slot][0]
                        self._note_copy(worker)
                    else:
                        row += fraction * (slots[slot][0] - row)
                case Snapshot(worker, slot, cut):
                    pushed = cut.register
                    names = (pushed,) if isinstance(pushed, str) else pushed
                    slots[slot] = tuple([self._registers[name][worker].copy() for name in names])
                case Forge(worker, slot, _, _, forgery):
                    honest = x[list(forgery.honest)]
                    slots[slot] = (forgery.of(x[worker], x[forgery.target], honest),)
                case Release(slot):
                    del slots[slot]
                case Combine(worker, register, terms):
                    total = np.zeros(self.task.dim)
                    for coefficient, term in terms:
                        total += coefficient * self._values(worker, term)
                    self._registers[register][worker] = total
                    if register == X and self._counts == "after the round":
                        self.counted[worker] = total
                case Exchange(worker, _, register):
                    row = torch.from_numpy(self._registers[register][worker])
                    self._segments.exchange(operation, (row,))
                case Keep() | Start():
                    self._begin_again(operation)

    def _values(self, worker: int, term: str | int | SlotPart) -> Array:
        if isinstance(term, str):
            row: Array = self._registers[term][worker]
            return row
        slot, part = SlotPart.of(term)
        return self._slots[slot][part]

    def disagreement(self, present: Present = None) -> float:
        """Sum over the workers of their squared distance from the mean, per coordinate."""
        counted = self.counted if present is None else self.counted[present]
        with np.errstate(over="ignore", invalid="ignore"):
            away = counted - counted.mean(axis=0)
            return float(np.square(away).sum()) / self.task.dim

    def objective(self, present: Present = None) -> float | None:
        """What the task's objective is at the mean of the vectors; None where it has none."""
        if self.task.objective is None:
            return None
        counted = self.counted if present is None else self.counted[present]
        with np.errstate(over="ignore", invalid="ignore"):
            return float(self.task.objective(counted.mean(axis=0)))

    def consensus_distance(self, present: Present = None) -> float:
        """``sqrt(mean_i |x_i - mean|^2) / |mean|``, or without the divisor where that is 0."""
        counted = self.counted if present is None else self.counted[present]
        with np.errstate(over="ignore", invalid="ignore"):
            mean = counted.mean(axis=0)
            spread = float(np.sqrt(np.square(counted - mean).sum() / len(counted)))
            size = float(np.linalg.norm(mean))
        return spread / size if size else spread

    def close(self) -> None:
        """Do nothing: no threads were started."""


def _draws(seed: int, id: PeerId, dim: int) -> Iterator[Array]:
    """One worker's noise, step by step."""
    rng = stream(seed, id, "noise")
    while True:
        yield from rng.standard_normal((_STEPS_AT_ONCE, dim))


def _checked(values: ArrayLike) -> Array:
    found = np.array(values, np.float64)
    if found.ndim != 2 or not found.size:
        raise ConfigError(f"values have shape {found.shape}: they must be (worker, dim)")
    if not np.isfinite(found).all():
        raise ConfigError("values must be finite")
    return found
