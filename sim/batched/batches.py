"""Batches of all workers, one by one or stacked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...gossip.types import PeerId
from ...train.faults.schedule import by_worker
from ...train.tasks.data import Batch, Loader, Sampler, is_pair
from ...train.tasks.task import Task
from .parameters import CPU

__all__ = ["Batches", "Ints", "batch_sizes"]

Ints = NDArray[np.int64]


def batch_sizes(
    texts: Sequence[str], ids: Sequence[str], otherwise: int, option: str = "batch_sizes"
) -> list[int]:
    """Read ``WORKER:N``: the samples per batch of each worker; see `by_worker`.

    >>> batch_sizes(["2:128", "peer-0:8"], ["peer-0", "peer-1", "peer-2"], 32)
    [8, 32, 128]
    """

    def read(text: str) -> int | None:
        return int(text) if text.isdecimal() and text.isascii() and 0 < int(text) < 2**32 else None

    form = "WORKER:N: write 3:128 for batches of 128 samples of worker 3 (N >= 1)"
    named = by_worker(option, texts, ids, read, form)
    return [named.get(index, otherwise) for index in range(len(ids))]


class Batches:
    """The batches of all workers: pairs of tensors also stacked, all others only one by one."""

    def __init__(
        self,
        task: Task,
        ids: Sequence[PeerId],
        partition: str,
        batch_size: int | Sequence[int],
        seed: int,
        parts: int | None = None,
        *,
        device: torch.device = CPU,
    ) -> None:
        found = task.split(partition, parts or len(ids), seed)
        sizes = [batch_size] * len(ids) if isinstance(batch_size, int) else batch_size
        self._device = device
        parted = [found[at % len(found)] for at in range(len(ids))]
        self._lengths = np.array([len(part) for part in parted])
        self._sizes = np.minimum(self._lengths, sizes[: len(ids)])
        self._loaders: list[Loader] = []
        if not (is_pair(task.train) and task.augment is None):
            self._loaders = [
                Loader(task, part, batch_size=size, seed=seed, peer=id, device=device)
                for part, size, id in zip(parted, sizes, ids, strict=False)
            ]
            return
        self._inputs, self._targets = (side.to(device) for side in task.train)
        self._samplers = [
            Sampler(part, size, seed=seed, peer=id)
            for part, size, id in zip(parted, sizes, ids, strict=False)
        ]
        self._starts = np.cumsum(self._lengths) - self._lengths
        # All workers' passes in a row: a read past the end of one gets samples that are not used.
        dtype = np.min_scalar_type(len(self._targets))
        self._orders = np.empty(self._lengths.sum() + max(sizes), dtype)
        self._runs: dict[int, NDArray[Any]] = {}
        """For each length, a view of what follows each position in the orders."""
        self._epochs = np.full(len(ids), -1)

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of all samples; only for pairs of tensors, see `indices`."""
        return self._inputs, self._targets

    @property
    def may_draw(self) -> bool:
        """True if making a batch may draw random numbers, or is not thread-safe."""
        return bool(self._loaders)

    def one(self, worker: int, step: int) -> Batch:
        """Return one worker's batch, on the device."""
        if self._loaders:
            return self._loaders[worker].take(step)
        indices = torch.from_numpy(self._samplers[worker].batch(step)).to(self._device)
        return self._inputs[indices], self._targets[indices]

    def sizes(self, workers: Ints) -> Ints:
        """Return the number of samples in a batch of each of these workers."""
        sizes: Ints = self._sizes[workers]
        return sizes

    def indices(self, workers: Ints, steps: Ints) -> NDArray[np.int32]:
        """Return the samples of workers' batches of one size, axes ``(worker, batch)``."""
        size, lengths = int(self._sizes[workers[0]]), self._lengths[workers]
        epochs, at = np.divmod(steps * size, lengths)
        for index in np.flatnonzero(self._epochs[workers] != epochs):
            self._begin_pass(int(workers[index]), int(epochs[index]))
        if size not in self._runs:
            self._runs[size] = np.lib.stride_tricks.sliding_window_view(self._orders, size)
        found: NDArray[np.int32] = self._runs[size][self._starts[workers] + at].astype(np.int32)
        for index in np.flatnonzero(at + size > lengths):
            worker, rest = int(workers[index]), int(lengths[index] - at[index])
            self._begin_pass(worker, int(epochs[index]) + 1)
            start = self._starts[worker]
            found[index, rest:] = self._orders[start : start + size - rest]
        return found

    def stacked(self, indices: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        """Stack batches of one size: axes ``(worker, batch, ...)``."""
        chosen = torch.from_numpy(indices).to(self._device)
        shape, flat = chosen.shape, chosen.view(-1)
        inputs, targets = self._inputs.index_select(0, flat), self._targets.index_select(0, flat)
        return (
            inputs.view(*shape, *self._inputs.shape[1:]),
            targets.view(*shape, *self._targets.shape[1:]),
        )

    def _begin_pass(self, worker: int, epoch: int) -> None:
        start, length = self._starts[worker], self._lengths[worker]
        self._orders[start : start + length] = self._samplers[worker].order(epoch)
        self._epochs[worker] = epoch
