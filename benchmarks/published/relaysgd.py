"""RelaySGD's random quadratics: steps to 1e-6 with the best learning rate, by rule and graph.

The task, the metric and the search for the learning rate are those of the authors' code: 32 workers
minimize the mean of |A_i x - b_i|^2 in 10 dimensions, all singular values between .5 and 1; zeta^2
is the mean square of the workers' gradients at the optimum; an error is how far the objective at
the mean of all models is above its least value, read after rounds that are evenly spaced in their
logarithm. The search runs on the equations; what it finds is then run by the rules themselves.

Source: Vogels et al., NeurIPS 2021, appendix, figures 7 and 8 and what their notebooks printed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray

from ...sim import VectorTask, simulate
from ...topology import parse
from ..results import Result, Row
from .equations import EQUATIONS

__all__ = ["Quadratics", "reproduce_relaysgd"]

WORKERS: Final = 32
_DIM: Final = 10
_MU: Final = 0.5
_TARGET: Final = 1e-6
_ZETA2_WITHIN: Final = 1e-5

Array = NDArray[np.float64]


class Quadratics:
    """One least-squares problem for each worker.

    Args:
        zeta2: Mean square of the workers' gradients at the optimum of all.
        workers: How many.
        dim: Dimensions.
        seed: Of PyTorch's stream, as in the authors' code.
    """

    def __init__(
        self, zeta2: float, *, workers: int = WORKERS, dim: int = _DIM, seed: int = 0
    ) -> None:
        self.workers, self.dim = workers, dim
        draw = partial(
            torch.randn, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        left, _, right = torch.svd(draw(workers, dim, dim))
        singular = torch.linspace(_MU, 1.0, dim, dtype=torch.float64)
        self._a: Array = (left @ torch.diag(singular) @ right.mT).numpy()
        self._stacked = self._a.reshape(workers * dim, dim)
        offsets: Array = draw(workers, dim, 1).numpy()[..., 0]
        self._b = self._moved_apart(offsets, zeta2)
        optimum: Array = draw(dim, 1).numpy()[:, 0]
        self._b += self._a @ (optimum / np.linalg.norm(optimum))
        self._least = self._value(self._optimum(self._b))

    def gradient(self, x: Array, workers: NDArray[np.int64]) -> Array:
        """Of some workers' own objectives, half of the published sum of squares; axes (k, dim)."""
        a = self._a[workers]
        return self._gradient(a, x, self._b[workers])

    def error(self, x: Array) -> float:
        """How far the objective is above its least value, at a point of axes (dim,)."""
        return self._value(x) - self._least

    def task(self, lr: float) -> VectorTask:
        """The task for the simulator, which begins at zero."""
        return VectorTask(
            "random-quadratics",
            values=np.zeros((self.workers, self.dim)),
            gradient=self.gradient,
            objective=self.error,
            lr=lr,
        )

    def _moved_apart(self, offsets: Array, zeta2: float) -> Array:
        """Targets whose optimum is zero, and whose heterogeneity is as wanted, by bisection."""
        b: Array = np.zeros_like(offsets)
        found, scale = 0.0, 1.0
        low, high = 0.0, np.inf
        while abs(found - zeta2) > _ZETA2_WITHIN:
            b = np.einsum("nkj,nj->nk", self._a, offsets * scale)
            b -= self._a @ self._optimum(b)
            at_optimum = np.tile(self._optimum(b), (self.workers, 1))
            found = float(np.square(self._gradient(self._a, at_optimum, b)).sum(axis=1).mean())
            if found < zeta2:
                low = max(low, scale)
            else:
                high = min(high, scale)
            scale = 2 * scale if high == np.inf else (low + high) / 2
        return b

    def _optimum(self, b: Array) -> Array:
        stacked = self._stacked
        found = np.linalg.solve(stacked.T @ stacked, stacked.T @ b.reshape(-1))
        return np.asarray(found, np.float64)

    def _value(self, x: Array) -> float:
        return float(np.square(self._stacked @ x - self._b.reshape(-1)).sum()) / self.workers

    @staticmethod
    def _gradient(a: Array, x: Array, b: Array) -> Array:
        found: Array = np.einsum("nkj,nk->nj", a, np.einsum("nkj,nj->nk", a, x) - b)
        return found


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell of the table."""

    zeta2: float
    rule: str
    topology: str
    steps: int
    """Published; 0 for one that is not."""
    lr: float = 0.0
    """Printed by the authors' search; 0 where none was."""
    plateau: bool = False
    """Whether the search was for a plateau just below the target, and not for the fewest steps."""
    long: bool = False
    """Whether it takes a minute or more."""

    @property
    def name(self) -> str:
        return f"zeta^2 {self.zeta2:g}, {self.topology}, {self.rule}"


_D2: Final = "d2:lazy=false"

CELLS: Final = (
    _Cell(0, _D2, "ring", 18, 0.394287109375),
    _Cell(0.1, _D2, "ring", 34, 0.1953125),
    _Cell(10, _D2, "ring", 54, 0.15625),
    _Cell(0, "gradient-tracking", "ring", 10, 0.4345703125),
    _Cell(0.1, "gradient-tracking", "ring", 301, 0.019330978393554688, long=True),
    _Cell(10, "gradient-tracking", "ring", 641, 0.0095367431640625, long=True),
    _Cell(0, "dpsgd", "ring", 13, 1.25, plateau=True),
    _Cell(0.1, "dpsgd", "ring", 1469, 0.0103759765625, plateau=True),
    _Cell(10, "dpsgd", "ring", 19_818, 0.000762939453125, plateau=True, long=True),
    _Cell(0, "relaysgd", "path", 51, 0.869140625),
    _Cell(0.1, "relaysgd", "path", 51, 0.869140625),
    _Cell(10, "relaysgd", "path", 54, 0.8984375),
    _Cell(0, _D2, "star", 65, 0.078125),
    _Cell(0, "gradient-tracking", "star", 9, 0.72265625),
    _Cell(0, "relaysgd", "star", 8, 0.78125),
    # Ours.
    _Cell(1, _D2, "ring", 0),
    _Cell(1, "relaysgd", "path", 0),
)

_STEPS_MAX: Final = 10_000
_STEPS_MAX_PLATEAU: Final = 70_000
_POINTS: Final = 1000
_TRIES: Final = 30
_LR_START: Final = 20.0


def reproduce_relaysgd(*, quick: bool = False) -> Result:
    """Make the table again.

    Args:
        quick: Leave out what takes half a minute or more.
    """
    chosen = [cell for cell in CELLS if not (quick and cell.long)]
    return Result(
        name="relaysgd",
        title="RelaySGD's random quadratics, 32 workers: rounds until the mean model is within "
        "1e-6 of the optimum, at the best learning rate",
        columns=("cell", "measured", "published", "ratio", "unit", "learning rates"),
        rows=tuple(map(_reproduced, chosen)),
    )


def _reproduced(cell: _Cell) -> Row:
    problem = Quadratics(cell.zeta2)
    # Their search for the fewest steps prints half of the rate at which it counted them.
    printed = cell.lr if cell.plateau else 2 * cell.lr
    lr = _searched(cell, problem)
    steps = _steps(cell, problem, lr)
    note = f"{lr:.6g}"
    if cell.lr:
        note += f"; theirs {printed:.6g}" + ("" if cell.plateau else ", twice what was printed")
    return Row(name=cell.name, ours=steps, reference=cell.steps, unit="rounds", note=note)


def _steps(cell: _Cell, problem: Quadratics, lr: float) -> int:
    """Rounds by the rule itself; 0 if it takes a tenth more than it should."""
    steps_max = int(1.1 * cell.steps) + 10 if cell.steps else 300
    run = simulate(
        task=problem.task(lr),
        rule=cell.rule,
        topology=cell.topology,
        workers=problem.workers,
        steps=steps_max,
        eval_every=1,
        network="ideal",
    )
    losses = dict(zip(run.series["steps"].astype(int).tolist(), run.series["loss"], strict=True))
    points = _points(_STEPS_MAX_PLATEAU if cell.plateau else _STEPS_MAX)
    errors = [(step, float(losses[step])) for step in points if step in losses]
    look = _plateau if cell.plateau else _fastest
    return look(iter(errors), None)[1] or 0


def _points(steps_max: int) -> list[int]:
    """Rounds after which an error is read."""
    return sorted({round(step) for step in np.geomspace(1, steps_max, _POINTS)})


# What becomes of a run at one rate: whether a larger one may be as good, and after how many rounds
# it arrived, if it did.
_Outcome = tuple[bool, int | None]
_Errors = Iterator[tuple[int, float]]


def _searched(cell: _Cell, problem: Quadratics) -> float:
    """The best learning rate by the authors' searches, on the equations."""
    graph = nx.Graph(parse(cell.topology, problem.workers).graph().to_undirected())
    rounds = EQUATIONS[cell.rule.partition(":")[0]]
    steps_max = _STEPS_MAX_PLATEAU if cell.plateau else _STEPS_MAX
    points = set(_points(steps_max))

    def errors(lr: float) -> _Errors:
        everybody = np.arange(problem.workers)
        start = np.zeros((problem.workers, problem.dim))
        gradient = partial(problem.gradient, workers=everybody)
        with np.errstate(over="ignore", invalid="ignore"):
            models = islice(rounds(graph, gradient, start, lr), steps_max)
            for step, x in enumerate(models, 1):
                if step in points:
                    yield step, problem.error(x.mean(axis=0))

    return (_search_plateau if cell.plateau else _search_fastest)(errors)


def _search_fastest(errors: Callable[[float], _Errors]) -> float:
    """Halve until it arrives without going up, then bisect for the fewest rounds."""
    low, high, lr = 0.0, _LR_START, _LR_START
    best, best_lr = None, 0.0
    for _ in range(_TRIES):
        if low and high - low <= 1e-4:
            break
        lr = (low + high) / 2 if low else lr
        may_grow, steps = _fastest(errors(lr), best)
        if steps is not None and (best is None or steps < best):
            best, best_lr = steps, lr
            lr /= 2
        elif may_grow:
            low = min(lr, high)
            high = min(4 * lr, high) if steps is not None else high
        else:
            high = max(low, lr)
            lr /= 2
    return best_lr


def _fastest(errors: _Errors, best: int | None) -> _Outcome:
    first = None
    seen: list[float] = []
    for step, error in errors:
        seen.append(error)
        first = error if first is None else first
        if error < _TARGET:
            return True, step
        if best is not None and step > 10 * best:
            return True, None
        if not error <= first or (len(seen) > 1 and error > seen[-2]):
            return False, None
        if _is_flat(seen, _TARGET / 10):
            return False, None
    return True, None


def _search_plateau(errors: Callable[[float], _Errors]) -> float:
    """Bisect for a rate whose errors settle just below the target."""
    low, high = 0.0, _LR_START
    best, best_lr = None, 0.0
    for _ in range(_TRIES):
        if low and high - low <= 1e-6:
            break
        lr = (low + high) / 2
        may_grow, steps, settled = _plateau(errors(lr), best)
        if steps is not None and (best is None or steps < best):
            best, best_lr = steps, lr
        if _TARGET / 1.1 < settled < _TARGET:
            break
        low, high = (lr, high) if may_grow else (low, lr)
    return best_lr


def _plateau(errors: _Errors, best: int | None) -> tuple[bool, int | None, float]:
    first = None
    seen: list[float] = []
    for step, error in errors:
        seen.append(error)
        first = error if first is None else first
        if best is not None and step > 10 * best:
            return True, None, 0.0
        is_up = len(seen) > 1 and error > seen[-2]
        if not error <= first or (is_up and error > _TARGET):
            return False, None, 0.0
        if _is_flat(seen, _TARGET / 100):
            settled = sum(seen[-3:]) / 3
            return settled < _TARGET, step if settled < _TARGET else None, settled
    return True, None, 0.0


def _is_flat(seen: Sequence[float], within: float) -> bool:
    last = seen[-3:]
    mean = sum(last) / len(last)
    return len(last) == 3 and all(abs(each - mean) < within for each in last)
