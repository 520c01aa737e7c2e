"""The task ``quadratic``: least squares, whose optimum is known."""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ...gossip.types import stream
from .task import Task

__all__ = ["quadratic"]

N_SAMPLES = 2048
N_FEATURES = 32
# Ratio of the largest to the smallest eigenvalue of the mean of a a^T, before sampling.
CONDITION = 10.0
NOISE = 0.1


def quadratic(*, seed: int) -> Task:
    """Draw a least-squares problem: f(x) = 1/2 mean over the samples of (a.x - b)^2.

    Inputs are the a, float32, axes ``(n_samples, n_features)``; targets the b, float32,
    ``(n_samples, 1)``. The targets are noisy, so that gradients are too, even at the optimum. The
    test loss is the excess of f(x) over the optimum.
    """
    rng = stream(seed, "quadratic", "data")
    scales = np.geomspace(1.0, CONDITION**-0.5, N_FEATURES)
    inputs = rng.standard_normal((N_SAMPLES, N_FEATURES)) * scales
    targets = inputs @ rng.standard_normal((N_FEATURES, 1))
    targets += NOISE * rng.standard_normal((N_SAMPLES, 1))
    # With A = QR, f(x) - f(x*) is 1/2 |R(x - x*)|^2 / N_SAMPLES, the same loss on the rows of a
    # scaled R, without subtracting two nearly equal numbers.
    q, r = np.linalg.qr(inputs)
    scale = np.sqrt(N_FEATURES / N_SAMPLES)
    return Task(
        name="quadratic",
        model=partial(nn.Linear, N_FEATURES, 1, bias=False),
        train=(_float32(inputs), _float32(targets)),
        test=(_float32(scale * r), _float32(scale * (q.T @ targets))),
        loss=_half_mean_square,
        lr=0.02,
        batch_size=32,
        steps=500,
    )


def _float32(array: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(array.astype(np.float32))


def _half_mean_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(outputs, targets) / 2
