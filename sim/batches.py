"""Which samples each worker takes at each step, as live."""

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..gossip import PeerId
from ..train.partition import split
from ..train.sampler import Sampler
from ..train.task import Task

__all__ = ["Batches"]


class Batches:
    """The batches of all workers.

    Args:
        task: What is trained.
        ids: The workers, in order.
        partition: How the data is split among them.
        batch_size: Samples per step and worker.
        seed: The run's seed.
        parts: Into how many parts the data is split, if not one for each: those who come when all
            are given share them, in turn.

    Raises:
        ConfigError: The partition is not valid, or there are too few samples for it.
    """

    def __init__(
        self,
        task: Task,
        ids: Sequence[PeerId],
        partition: str,
        batch_size: int,
        seed: int,
        parts: int | None = None,
    ) -> None:
        found = split(partition, task.train[1], parts or len(ids), seed)
        self._samplers = [
            Sampler(part, batch_size, seed=seed, peer=id)
            for part, id in zip(cycle(found), ids, strict=False)
        ]
        self._inputs, self._targets = task.train

    def one(self, worker: int, step: int) -> tuple[Tensor, Tensor]:
        """One worker's batch: inputs and targets, first axis ``batch``."""
        indices = torch.from_numpy(self._samplers[worker].batch(step))
        return self._inputs[indices], self._targets[indices]

    def indices(self, workers: Sequence[int], steps: Sequence[int]) -> list[NDArray[np.int64]]:
        """The samples of several workers' batches; sizes may differ between workers."""
        samplers = self._samplers
        return [samplers[w].batch(step) for w, step in zip(workers, steps, strict=True)]

    def stacked(self, indices: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
        """Batches of one size beside one another: axes ``(worker, batch, ...)``."""
        chosen = torch.from_numpy(np.stack(indices))
        shape, flat = chosen.shape, chosen.view(-1)
        inputs, targets = self._inputs.index_select(0, flat), self._targets.index_select(0, flat)
        return (
            inputs.view(*shape, *self._inputs.shape[1:]),
            targets.view(*shape, *self._targets.shape[1:]),
        )
