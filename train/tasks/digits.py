"""The task ``digits``: real handwritten digits, small enough to train in a second."""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .task import Task

__all__ = ["digits"]

N_TEST = 360
N_HIDDEN = 32


def digits() -> Task:
    """Build the task: 8x8 gray images of ten digits, and a network with one hidden layer.

    Inputs are float32 in [0, 1], axes ``(n_samples, 64)``; targets int64, ``(n_samples,)``.
    1,437 samples are for training and 360 held out, as many of each digit in proportion, and
    the same in every run, so that accuracies of different seeds are of the same samples.

    Returns:
        The task; an accuracy of 0.95 is reached within its default steps.

    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998.
    """
    train, test, train_labels, test_labels = map(torch.from_numpy, _split())
    return Task(
        name="digits",
        model=_network,
        train=(train.float() / 16, train_labels.clone()),
        test=(test.float() / 16, test_labels.clone()),
        loss=functional.cross_entropy,
        accuracy=_fraction_right,
        lr=0.1,
        batch_size=32,
        steps=600,
    )


@cache
def _split() -> list[Any]:
    """Images and labels, read once by a process however many swarms it simulates."""
    # Here, because importing scikit-learn takes a second that the other tasks need not pay.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    split: list[Any] = train_test_split(
        pixels, labels, test_size=N_TEST, stratify=labels, random_state=0
    )
    return split


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, N_HIDDEN), nn.ReLU(), nn.Linear(N_HIDDEN, 10))


def _fraction_right(outputs: Tensor, targets: Tensor) -> float:
    return (outputs.argmax(dim=1) == targets).double().mean().item()
