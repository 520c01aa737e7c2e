"""RelaySGD's random quadratics: rounds to 1e-6 at the authors' learning rates, by rule and graph.

Task and metric are those of the authors' code: 32 workers minimize the mean of |A_i x - b_i|^2 in
10 dimensions, all singular values between .5 and 1; zeta^2 is the mean square of the workers'
gradients at the optimum; an error is how far the objective at the mean of all models is above its
least value, read after rounds that are evenly spaced in their logarithm.

Source: Vogels et al., NeurIPS 2021, appendix, figures 7 and 8 and what their notebooks printed.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from table import show

from rumor.sim import simulate
from rumor.sim.batched.vector_tasks import VectorTask

WORKERS, DIM, MU, TARGET = 32, 10, 0.5, 1e-6
POINTS, POINTS_MAX = 1000, {False: 10_000, True: 70_000}

# zeta^2, rule, graph, published rounds, learning rate. Their search for the fewest rounds prints
# half of the rate at which it counted them. D-PSGD was tuned otherwise, for a plateau just below
# the target, whose rate is printed as it is.
CELLS = (
    (0.0, "d2:lazy=false", "ring", 18, 2 * 0.394287109375),
    (0.1, "d2:lazy=false", "ring", 34, 2 * 0.1953125),
    (10.0, "d2:lazy=false", "ring", 54, 2 * 0.15625),
    (0.0, "gradient-tracking", "ring", 10, 2 * 0.4345703125),
    (0.1, "gradient-tracking", "ring", 301, 2 * 0.019330978393554688),
    (10.0, "gradient-tracking", "ring", 641, 2 * 0.0095367431640625),
    (0.0, "dpsgd", "ring", 13, 1.25),
    (0.1, "dpsgd", "ring", 1469, 0.0103759765625),
    (10.0, "dpsgd", "ring", 19_818, 0.000762939453125),
    (0.0, "relaysgd", "path", 51, 2 * 0.869140625),
    (0.1, "relaysgd", "path", 51, 2 * 0.869140625),
    (10.0, "relaysgd", "path", 54, 2 * 0.8984375),
    (0.0, "d2:lazy=false", "star", 65, 2 * 0.078125),
    (0.0, "gradient-tracking", "star", 9, 2 * 0.72265625),
    (0.0, "relaysgd", "star", 8, 2 * 0.78125),
)

Array = NDArray[np.float64]


class Quadratics:
    """One least-squares problem for each worker; random numbers are drawn as in the authors' code.

    Args:
        zeta2: Mean square of the workers' gradients at the optimum of all.
    """

    def __init__(self, zeta2: float) -> None:
        draw = partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        left, _, right = torch.svd(draw(WORKERS, DIM, DIM))
        singular = torch.linspace(MU, 1.0, DIM, dtype=torch.float64)
        self._a: Array = (left @ torch.diag(singular) @ right.mT).numpy()
        self._stacked = self._a.reshape(WORKERS * DIM, DIM)
        self._b = self._moved_apart(draw(WORKERS, DIM, 1).numpy()[..., 0], zeta2)
        optimum: Array = draw(DIM, 1).numpy()[:, 0]
        self._b += self._a @ (optimum / np.linalg.norm(optimum))
        self._least = self._value(self._optimum(self._b))

    def task(self, lr: float) -> VectorTask:
        """For the simulator, from zero; gradients are half of the published sum of squares'."""
        return VectorTask(
            "random-quadratics",
            values=np.zeros((WORKERS, DIM)),
            gradient=lambda x, workers: gradients(self._a[workers], x, self._b[workers]),
            objective=lambda x: self._value(x) - self._least,
            lr=lr,
        )

    def _moved_apart(self, offsets: Array, zeta2: float) -> Array:
        """Targets whose optimum is zero, and whose heterogeneity is as wanted, by bisection."""
        b: Array = np.zeros_like(offsets)
        found, scale, low, high = 0.0, 1.0, 0.0, np.inf
        while abs(found - zeta2) > 1e-5:
            b = np.einsum("nkj,nj->nk", self._a, offsets * scale)
            b -= self._a @ self._optimum(b)
            at_optimum = np.tile(self._optimum(b), (WORKERS, 1))
            found = float(np.square(gradients(self._a, at_optimum, b)).sum(axis=1).mean())
            low, high = (max(low, scale), high) if found < zeta2 else (low, min(high, scale))
            scale = 2 * scale if high == np.inf else (low + high) / 2
        return b

    def _optimum(self, b: Array) -> Array:
        stacked = self._stacked
        return np.asarray(np.linalg.solve(stacked.T @ stacked, stacked.T @ b.reshape(-1)))

    def _value(self, x: Array) -> float:
        return float(np.square(self._stacked @ x - self._b.reshape(-1)).sum()) / WORKERS


def gradients(a: Array, x: Array, b: Array) -> Array:
    """Of |a x - b|^2 / 2, axes (worker, dim)."""
    return np.asarray(np.einsum("nkj,nk->nj", a, np.einsum("nkj,nj->nk", a, x) - b))


def rounds(zeta2: float, rule: str, topology: str, published: int, lr: float) -> int:
    """Rounds by the rule as peers run it; 0 if it takes a tenth more than it should."""
    run = simulate(
        task=Quadratics(zeta2).task(lr),
        rule=rule,
        topology=topology,
        workers=WORKERS,
        steps=int(1.1 * published) + 10,
        eval_every=1,
        network="ideal",
    )
    losses = dict(zip(run.series["steps"].astype(int).tolist(), run.series["loss"], strict=True))
    is_plateau = rule == "dpsgd"
    points = sorted({round(point) for point in np.geomspace(1, POINTS_MAX[is_plateau], POINTS)})
    seen: list[float] = []
    for point in filter(losses.__contains__, points):
        seen.append(float(losses[point]))
        last = seen[-3:]
        settled = sum(last) / 3
        is_flat = len(last) == 3 and all(abs(each - settled) < TARGET / 100 for each in last)
        if (is_flat and settled < TARGET) if is_plateau else seen[-1] < TARGET:
            return point
    return 0


def rows() -> Iterator[tuple[str, float, float, str]]:
    """Each cell: published and measured rounds."""
    for cell in CELLS:
        zeta2, rule, topology, published, lr = cell
        name = f"zeta^2 {zeta2:g}, {topology}, {rule}"
        yield name, published, rounds(*cell), f"learning rate {lr:.6g}"


if __name__ == "__main__":
    title = "RelaySGD's random quadratics, 32 workers: rounds until the mean model is within 1e-6 "
    head = ("cell", "published", "measured")
    show("relaysgd", f"{title}of the optimum, at the authors' learning rates", head, rows())
