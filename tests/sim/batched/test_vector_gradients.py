"""Tasks on vectors with a gradient are exactly plain gradient descent."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rumor.sim import simulate
from rumor.sim.batched.vector_tasks import VectorTask

Array = NDArray[np.float64]
CENTERS = np.array([[1.0, -2.0, 0.5], [3.0, 0.0, 0.25], [-1.0, 4.0, 2.0]])


def gradient(x: Array, workers: NDArray[np.int64]) -> Array:
    away: Array = x - CENTERS[workers]
    return away


def bowls(**more: Any) -> VectorTask:
    """Half the squared distance from each worker's own center."""
    return VectorTask("bowls", values=np.zeros((3, 3)), gradient=gradient, **more)


def test_one_worker_is_gradient_descent_bit_for_bit() -> None:
    task = VectorTask(
        "bowl", values=np.zeros((1, 3)), gradient=gradient, objective=lambda x: float(x[1]), lr=0.3
    )
    run = simulate(task=task, workers=1, topology="complete", steps=20, eval_every=1)
    x = np.zeros(3)
    for loss in run.series["loss"][1:]:
        x = x - 0.3 * (x - CENTERS[0])
        assert loss == x[1]


def test_rounds_of_dpsgd_follow_its_equation() -> None:
    run = simulate(
        task=bowls(objective=lambda x: float(np.square(x).sum()), lr=0.1),
        rule="dpsgd", workers=3, topology="path", steps=15, eval_every=1, network="ideal",
    )  # fmt: skip
    matrix = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
    x = np.zeros((3, 3))
    for loss in run.series["loss"][1:]:
        x = matrix @ (x - 0.1 * gradient(x, np.arange(3)))
        assert loss == pytest.approx(np.square(x.mean(axis=0)).sum(), rel=1e-12)


def test_the_learning_rate_of_the_settings_takes_precedence() -> None:
    runs = [
        simulate(task=bowls(objective=np.sum, lr=own), lr=given, workers=3, steps=5, seed=1)
        for own, given in ((0.2, None), (0.7, 0.2))
    ]
    assert runs[0].series["loss"].tolist() == runs[1].series["loss"].tolist()


def test_without_an_objective_there_is_no_loss() -> None:
    assert "loss" not in simulate(task=bowls(), workers=3, steps=5).series
