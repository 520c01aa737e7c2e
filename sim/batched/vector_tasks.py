"""Tasks without a model: plain vectors that are averaged, or that noise drives apart."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ...gossip.errors import ConfigError, TrainingError
from ...gossip.types import PeerId, stream
from ...gossip.wire.schema import HASH_BYTES
from ..kernel.program import Combine, Level, Operation
from .cores import ONE_CORE, Threads
from .parameters import ParameterMatrix

__all__ = ["VECTOR_TASKS", "VectorRows", "VectorTask", "consensus", "noise"]

DIM = 8
STEPS = 200
LR = 0.1

# Draws made at a time: a stream costs 20 us to open, and a call as much as eight numbers.
_STEPS_AT_ONCE = 16

# Vectors may diverge under rules that are meant to fail.
_QUIETLY = np.errstate(over="ignore", invalid="ignore")

Array = NDArray[np.float64]

Present = NDArray[np.int64] | None
"""Workers in the swarm, which count, ascending; None for all."""

Moment = Literal["now", "after the step", "after the round"]
"""Time at which a worker's vector is read for the disagreement."""

Gradient = Callable[[Array, NDArray[np.int64]], Array]
"""Given vectors of some workers, float64, axes ``(worker, dim)``, and their rows, returns the
gradient of each worker's own objective at its vector, of the same shape."""


class VectorTask:
    """Vectors in place of models.

    Args:
        dim: Numbers in each worker's vector.
        values: Initial vectors, float64, axes ``(worker, dim)``; by default drawn from a standard
            normal distribution, or zeros with noise.
        noise: Standard deviation of what each step adds to each number.
        gradient: Direction of each step; by default steps do not move.
        objective: Value to minimize at the mean of all vectors, axes ``(dim,)``: a run's ``loss``.
        lr: Learning rate of the steps along the gradient.
    """

    def __init__(
        self,
        name: str,
        *,
        dim: int = DIM,
        values: ArrayLike | None = None,
        noise: float = 0.0,
        gradient: Gradient | None = None,
        objective: Callable[[Array], float] | None = None,
        lr: float = LR,
    ) -> None:
        self.name = name
        self.noise = noise
        self.gradient = gradient
        self.objective = objective
        self.lr = lr
        self.steps = STEPS
        self._values = None if values is None else np.array(values, np.float64)
        if self._values is not None:
            if self._values.ndim != 2 or not self._values.size:
                shape = self._values.shape
                raise ConfigError(f"values have shape {shape}: they must be (worker, dim)")
            if not np.isfinite(self._values).all():
                raise ConfigError("values must be finite")
            dim = self._values.shape[1]
        self.dim = dim
        if self.dim < 1:
            raise ConfigError(f"dim is {self.dim}: it must be at least 1")

    def start(self, ids: Sequence[PeerId], seed: int) -> Array:
        """Return the workers' initial vectors, float64, axes ``(worker, dim)``."""
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
    """Pure averaging: steps change nothing, so that only the agreement of workers changes.

    Args:
        values: A vector for each worker, axes ``(worker, dim)``; drawn by default.
        dim: Numbers in each, if they are drawn.
    """
    return VectorTask("consensus", dim=dim, values=values)


def noise(*, dim: int = DIM) -> VectorTask:
    """Unit Gaussian steps instead of gradients, from zero.

    Mixing and noise balance at a *stationary* disagreement.

    Args:
        dim: Numbers in each vector; they are independent, so that more give a steadier mean.

    Source: Blot, Picard, Cord and Thome 2016, section on consensus under noise.
    """
    return VectorTask("noise", dim=dim, noise=1.0)


VECTOR_TASKS: Mapping[str, Callable[[], VectorTask]] = MappingProxyType(
    {"consensus": consensus, "noise": noise}
)
"""Tasks by the name that a user types."""


class VectorRows:
    """The vectors of all workers, as parameters of a model of one tensor, and their steps."""

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
        threads: Threads = ONE_CORE,
        lr: float | None = None,
    ) -> None:
        self.task = task
        self._lr = lr or task.lr
        start = task.start(ids, seed)
        module = torch.nn.Module()
        # Shares are relative to zero in the formats that need an anchor.
        module.x = torch.nn.Parameter(torch.zeros(task.dim, dtype=torch.float64, device="cpu"))
        cut: dict[str, Any] = {"shards": shards, "scattered": scattered}
        self.rows = ParameterMatrix(
            module, len(ids), registers, **cut, ids=ids, seed=seed, threads=threads
        )
        self.schema = self.rows.schema
        self.n_params = task.dim
        self.anchor = blake2b(f"{task.name} {task.dim}".encode(), digest_size=HASH_BYTES).digest()
        self.x: Array = self.rows.x[0].numpy()[:, : task.dim]
        """float64, axes ``(worker, dim)``."""
        self.x[:] = start
        self._counts = counts
        self.counted = self.x if counts == "now" else self.x.copy()
        """Each worker's vector as it was at its `Moment`."""
        self._has_lives = False
        if counts == "after the round":
            self.rows.shares.refreshed = self._count
        self._noise = [_draws(seed, id, task.dim) for id in ids] if task.noise else []

    def live_again(self) -> None:
        self.rows.live_again(None, alike=False)
        self.rows.shares.refreshed = self._count
        self._has_lives = True

    def _count(self, worker: int, operation: Operation) -> None:
        if isinstance(operation, Combine):
            counts = self._counts == "after the round"
        else:
            # A newcomer counts from its copy on: its earlier vector is not the swarm's.
            counts = self._has_lives
        if counts:
            self.counted[worker] = self.x[worker]

    def execute(self, levels: Iterable[Level]) -> None:
        for level in levels:
            if self.task.gradient is not None and level.workers:
                which = np.asarray(level.workers, np.int64)
                self.x[which] -= self._lr * self.task.gradient(self.x[which], which)
            for worker in level.workers if self.task.noise else ():
                self.x[worker] += next(self._noise[worker])
            if self._counts == "after the step":
                self.counted[level.workers] = self.x[level.workers]
            with torch.no_grad():
                unfit = self.rows.shares.carry_out_level(level)
            if unfit:
                raise TrainingError(
                    f"a value of the task {self.task.name} does not fit into the wire's format"
                )

    def measure(self, levels: Iterable[Level], worker: int, slots: Sequence[int]) -> list[float]:
        self.execute(levels)
        return [self.rows.shares.distance(worker, slot) for slot in slots]

    def _counted(self, present: Present) -> Array:
        return self.counted if present is None else self.counted[present]

    @_QUIETLY
    def disagreement(self, present: Present = None) -> float:
        """Return the workers' summed squared distances from the mean, per coordinate."""
        counted = self._counted(present)
        return float(np.square(counted - counted.mean(axis=0)).sum()) / self.task.dim

    @_QUIETLY
    def objective(self, present: Present = None) -> float | None:
        """Return the task's objective at the mean of the vectors; None without an objective."""
        if self.task.objective is None:
            return None
        return float(self.task.objective(self._counted(present).mean(axis=0)))

    @_QUIETLY
    def consensus_distance(self, present: Present = None) -> float:
        """Return ``sqrt(mean_i |x_i - mean|^2) / |mean|``, undivided if ``|mean|`` is 0."""
        counted = self._counted(present)
        mean = counted.mean(axis=0)
        spread = float(np.sqrt(np.square(counted - mean).sum() / len(counted)))
        size = float(np.linalg.norm(mean))
        return spread / size if size else spread


def _draws(seed: int, id: PeerId, dim: int) -> Iterator[Array]:
    rng = stream(seed, id, "noise")
    while True:
        yield from rng.standard_normal((_STEPS_AT_ONCE, dim))
