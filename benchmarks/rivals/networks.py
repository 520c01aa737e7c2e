"""Tasks of several sizes on the digits, for benchmarks: connected layers, norms, convolutions."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...train.tasks.digits import digits
from ...train.tasks.task import Task

__all__ = ["HIDDEN", "NETS", "make"]

HIDDEN: Mapping[str, int] = MappingProxyType({"2.4 k": 32, "80 k": 1070})
"""Units of the one hidden layer, by how many parameters the network has then."""

_SIDE = 8


def make(net: str) -> Task:
    """Build the digits task around another network.

    Args:
        net: One of `NETS`.

    Returns:
        The task; inputs are images where the network takes images.
    """
    return NETS[net]()


def _connected(net: str) -> Task:
    return replace(digits(), name=f"digits, {net}", model=partial(_network, HIDDEN[net]))


def _network(hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(_SIDE**2, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def _lenet() -> Task:
    return _of_images("LeNet", _lenet_network, side=28)


def _resnet() -> Task:
    return _of_images("ResNet-20", _resnet_network, side=16)


def _of_images(name: str, model: Callable[[], nn.Module], side: int) -> Task:
    task = digits()
    train, test = ((_enlarge(pair[0], side), pair[1]) for pair in (task.train, task.test))
    return replace(task, name=f"digits, {name}", model=model, train=train, test=test, lr=0.02)


def _enlarge(pixels: Tensor, side: int) -> Tensor:
    """Square images of one channel."""
    return functional.interpolate(pixels.view(-1, 1, _SIDE, _SIDE), size=(side, side))


def _normed() -> Task:
    return replace(digits(), name="digits, LayerNorm", model=_normed_network)


def _normed_network() -> nn.Module:
    """64 -> 32 -> 10 with a norm and GELU between them: 2.5 k parameters."""
    hidden = HIDDEN["2.4 k"]
    return nn.Sequential(
        nn.Linear(_SIDE**2, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Linear(hidden, 10)
    )


def _lenet_with_norms() -> Task:
    return _of_images("LeNet, BatchNorm", _lenet_network_with_norms, side=28)


def _lenet_network_with_norms() -> nn.Module:
    """LeNet-5 with BatchNorm after each convolution, whose running means each worker has."""
    first, relu, pool, second, *rest = _lenet_network().children()
    return nn.Sequential(
        *(first, nn.BatchNorm2d(6), relu, pool),
        *(second, nn.BatchNorm2d(16), *rest),
    )


def _lenet_network() -> nn.Module:
    """LeNet-5 on 28x28, with ReLU and maxima: 44 k parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def _resnet_network() -> nn.Module:
    """ResNet-20 on 16x16, with norms over groups, which have no running means: 0.27 M."""
    widths = [16] * 3 + [32] * 3 + [64] * 3
    blocks = [_Block(a, b) for a, b in zip([16, *widths], widths, strict=False)]
    stem = [nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.GroupNorm(4, 16), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*stem, *blocks, *head)


class _Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        stride = n_out // n_in
        self.around = (
            nn.Identity() if stride == 1 else nn.Conv2d(n_in, n_out, 1, stride, bias=False)
        )
        self.through = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False),
            *(nn.GroupNorm(4, n_out), nn.ReLU()),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
            nn.GroupNorm(4, n_out),
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.around(images) + self.through(images))


NETS: Mapping[str, Callable[[], Task]] = MappingProxyType(
    {
        **{net: partial(_connected, net) for net in HIDDEN},
        "LayerNorm": _normed,
        "LeNet": _lenet,
        "LeNet, BatchNorm": _lenet_with_norms,
        "ResNet-20": _resnet,
    }
)
"""Every network, by name."""
