"""Whole steps of fully connected networks in machine code, with the loop's bits.

A step is some forty calls of torch, each of which hands its result to the next one by way of a slow
cache. Here one call takes the steps of many workers, one after another, and holds no lock of
Python's meanwhile. Products are those of torch's own BLAS library, called at its address.
"""

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ....gossip.errors import ConfigError
from ....train.tasks.task import Task
from ..parameters import ParameterMatrix
from .interface import (
    CALL_BYTES,
    FACTORS,
    SGEMM,
    SIZES,
    STRIDES,
    TRANSPOSED,
    Network,
    RowUpdate,
    address,
)
from .row_passes import alike

__all__ = ["DenseLayer", "DenseStep", "dense_layers", "why_not"]

Ints = NDArray[np.int64]


class DenseLayer(NamedTuple):
    """Where a layer lies in a worker's vector, and how large it is."""

    weight: int
    """Where its weight begins, axes ``(n_out, n_in)``."""
    bias: int
    """Where its bias begins, axis ``n_out``."""
    n_in: int
    n_out: int


def dense_layers(rows: ParameterMatrix, task: Task) -> list[DenseLayer]:
    """Where the layers of a fully connected network lie in a worker's vector, in order.

    Raises:
        ConfigError: The task is none.
    """
    names = _layers(rows.module)
    (segment,) = rows.segments
    placed = {p.spec.name: p for p in segment.tensors}
    trained = {f"{name}.{part}" for name in names for part in ("weight", "bias")} == set(placed)
    layers = []
    if names and trained:
        start, size = segment.start_bytes, rows.x[0].element_size()
        for name in names:
            weight, bias = placed[f"{name}.weight"], placed[f"{name}.bias"]
            # Not what the module says of itself: its parameters may have been replaced.
            n_out, n_in = weight.spec.shape
            places = [(part.offset_bytes - start) // size for part in (weight, bias)]
            layers.append(DenseLayer(places[0], places[1], n_in, n_out))
    if not (layers and _fits(task, layers)):
        raise ConfigError(
            f"steps of the task {task.name} are not taken in machine code: that is only for "
            "Sequential models of Linear and ReLU, none of them frozen, under "
            "torch.nn.functional.cross_entropy of integer targets, or mse_loss of one number for "
            "each output"
        )
    return layers


def _fits(task: Task, layers: Sequence[DenseLayer]) -> bool:
    """Whether such layers go from rows of numbers to what is wanted of them."""
    inputs, targets = task.train
    widths = [inputs.shape[1], *(layer.n_out for layer in layers)] if inputs.ndim == 2 else []
    if not widths or any(layer.n_in != width for layer, width in zip(layers, widths, strict=False)):
        return False
    if task.loss is functional.mse_loss:
        return bool(targets.dtype == torch.float32 and targets.shape == (len(inputs), widths[-1]))
    if task.loss is not functional.cross_entropy or targets.ndim != 1:
        return False
    is_class = not targets.is_floating_point()
    return is_class and 0 <= int(targets.min()) and int(targets.max()) < widths[-1]


def _layers(module: nn.Module) -> list[str]:
    """Names of the Linear layers in order, or none where the module is of another kind."""
    if type(module) is not nn.Sequential:
        return []
    # Not named_children, which passes over a layer that stands there twice.
    parts = [(name, part) for name, part in module._modules.items() if part is not None]
    linear = {name: part for name, part in parts if type(part) is nn.Linear}
    alternating = all(
        type(part) is (nn.Linear if index % 2 == 0 else nn.ReLU)
        for index, (_, part) in enumerate(parts)
    )
    each_once = len({id(layer) for layer in linear.values()}) == len(linear)
    have_bias = all(layer.bias is not None for layer in linear.values())
    whole = alternating and each_once and have_bias and len(parts) % 2 == 1
    return [*linear] if whole else []


def why_not(layers: Sequence[DenseLayer], *, squared: bool = False) -> str:
    """Why steps of such a network cannot be taken here with torch's bits, or nothing.

    Args:
        layers: In order.
        squared: Whether errors are squared; else there are classes.
    """
    if not address(SGEMM):
        return "torch's library shows no sgemm"
    if not (squared or _lanes(layers[-1].n_out)):
        return "softmax rounds otherwise here"
    return ""


class DenseStep:
    """Takes steps of a network, layers of Linear with ReLU between them.

    Args:
        layers: In order; `why_not` finds nothing.
        inputs: All samples, float32, axes ``(sample, feature)``.
        targets: Their classes, int64, each from 0 to below the number of classes; or numbers,
            float32, axes ``(sample, output)``, from which errors are squared.
        row: Numbers in a worker's vector.
    """

    def __init__(
        self, layers: Sequence[DenseLayer], inputs: Tensor, targets: Tensor, row: int
    ) -> None:
        self._layers = np.array(layers, np.int64)
        self._squared = targets.is_floating_point()
        classes, numbers = (
            torch.zeros(0, dtype=torch.int64, device="cpu"),
            torch.zeros(0, 0, dtype=torch.float32, device="cpu"),
        )
        classes, numbers = (classes, targets) if self._squared else (targets, numbers)
        each = inputs.contiguous(), classes.contiguous(), numbers.contiguous()
        self._inputs, self._classes, self._numbers = (part.numpy() for part in each)
        self._row = row
        self._lanes = 0 if self._squared else _lanes(layers[-1].n_out)
        self._own = threading.local()

    def fits(self, batch: int) -> bool:
        """Whether batches of that size are added up as torch does."""
        return all(_sum_lanes(batch, n_out) for n_out in self._layers[:, 3].tolist())

    def take(
        self,
        x: Tensor,
        workers: Ints,
        update: RowUpdate,
        samples: NDArray[np.int32],
    ) -> tuple[bool, Tensor]:
        """Take a step in the rows of some workers, in place.

        Args:
            x: All workers' vectors, float32, axes ``(worker, number)``.
            samples: What each trains on, axes ``(step, batch)``; the batch `fits`.

        Returns:
            Whether all values are finite after it, and losses, axis ``step``; they are added up in
            another order than torch does.
        """
        from . import dense_code

        losses, network = (
            torch.zeros(len(workers), dtype=torch.float32, device="cpu"),
            self._network(samples.shape[1]),
        )
        known = self._inputs, self._classes, self._numbers
        given = x.numpy(), workers, update, *known, samples, losses.numpy(), network
        return dense_code.take_steps(*given), losses

    def _network(self, batch: int) -> Network:
        """This thread's own, for batches of one size."""
        own: dict[int, Network] = vars(self._own).setdefault("networks", {})
        if batch not in own:
            own[batch] = self._make_network(batch)
        return own[batch]

    def _make_network(self, batch: int) -> Network:
        n_in, n_out = self._layers[:, 2], self._layers[:, 3]
        ends = np.cumsum(_lines(batch * np.array([n_in[0], *n_out])))
        before, wide = np.array([0, *ends[:-1]]), _lines(batch * self._layers[:, 2:].max())
        places = np.stack([before[:-1], before[1:]], axis=1)
        calls = [_calls(batch, *layer[2:]) for layer in self._layers.tolist()]
        end = int(ends[-1])
        return Network(
            layers=np.concatenate([self._layers, places], axis=1),
            calls=np.array(calls),
            sgemm=address(SGEMM),
            # Made by torch, so that they lie as its own tensors do.
            scratch=torch.zeros(end + 2 * int(wide), dtype=torch.float32, device="cpu").numpy(),
            slopes=(end, end + int(wide)),
            gradient=torch.zeros(self._row, dtype=torch.float32, device="cpu").numpy(),
            squared=self._squared,
            part=np.float32(2.0 / (batch * n_out[-1]) if self._squared else 1.0 / batch),
            lanes=self._lanes,
            # Where that is not found, `fits` lets no single column come here.
            sum_lanes=_sum_lanes(batch, 1) or 1,
        )


def _lines(n: Any) -> Any:
    """So many numbers, up to the end of a cache line."""
    return (n + 15) // 16 * 16


def _calls(batch: int, n_in: int, n_out: int) -> list[NDArray[np.uint8]]:
    """The products of a layer: `FORWARD`, `BY_INPUT` and `BY_WEIGHT`.

    BLAS counts by columns, so that it takes all matrices as transposed.
    """
    return [
        _call("TN", (n_out, batch, n_in), (n_in, n_in, n_out), added=True),
        _call("NN", (n_in, batch, n_out), (n_in, n_out, n_in)),
        _call("NT", (n_in, n_out, batch), (n_in, n_out, n_in)),
    ]


def _call(
    transposed: str, sizes: Sequence[int], strides: Sequence[int], *, added: bool = False
) -> NDArray[np.uint8]:
    """What ``sgemm`` wants to be pointed to, but for the matrices."""
    block = np.zeros(CALL_BYTES, np.uint8)
    for at, letter in zip(TRANSPOSED, transposed, strict=True):
        block[at] = ord(letter)
    # Who reads 32 bits of these finds the same number.
    for at, number in zip((*SIZES, *STRIDES), (*sizes, *strides), strict=True):
        block[at : at + 8] = np.array([number], "<i8").view(np.uint8)
    for at, factor in zip(FACTORS, (1.0, float(added)), strict=True):
        block[at : at + 4] = np.array([factor], np.float32).view(np.uint8)
    return block


# More classes do not stay in the nearest cache.
_CLASSES_MAX = 256

# Numbers in a register: of AVX-512, of AVX2, and of what most others have.
_LANES = (16, 8, 4)

_DRAWS = 16
_BATCH = 20  # the parts of which are no binary fractions


@cache
def _lanes(n_classes: int) -> int:
    """How many numbers torch adds up side by side in a softmax; 0 where its bits are not found."""
    from . import dense_code

    if not 1 < n_classes <= _CLASSES_MAX:
        return 0
    drawn = torch.Generator().manual_seed(0)
    # Classes that are as good as certain and as good as impossible, too.
    spread = torch.tensor([0.1, 2.0, 10.0, 100.0], dtype=torch.float32, device="cpu").repeat(
        12 * _BATCH
    )[:, None]
    outputs = (
        torch.randn(len(spread), n_classes, generator=drawn, dtype=torch.float32, device="cpu")
        * spread
    )
    targets = torch.randint(0, n_classes, (len(spread),), generator=drawn, device="cpu")
    outputs.requires_grad_()
    loss = functional.cross_entropy(outputs, targets, reduction="sum") / _BATCH
    (slopes,) = torch.autograd.grad(loss, outputs)
    found, losses = torch.empty_like(slopes), np.zeros(1, np.float32)
    given = outputs.detach().numpy(), targets.numpy(), found.numpy(), losses
    for lanes in _LANES:
        dense_code.cross_entropy(*given, np.float32(1.0 / _BATCH), lanes)
        if alike(found, slopes):
            return lanes
    return 0


@cache
def _sum_lanes(batch: int, n: int) -> int:
    """With how many numbers in a register, of a single column, rows are added up as torch does; 0
    where its bits are not found."""
    from . import dense_code

    # Few columns may agree by chance.
    drawn = torch.Generator().manual_seed(0)
    slopes, found = (
        torch.randn(_DRAWS, batch, n, generator=drawn, dtype=torch.float32, device="cpu"),
        torch.empty(_DRAWS, n, dtype=torch.float32, device="cpu"),
    )
    known = torch.stack([rows.sum(dim=0) for rows in slopes])
    for lanes in _LANES:
        for rows, sums in zip(slopes, found, strict=True):
            dense_code.sum_rows(rows.numpy(), sums.numpy(), lanes)
        if alike(found, known):
            return lanes
    return 0
