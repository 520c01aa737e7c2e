"""Data on their way to training: cut into batches, prepared ahead, augmented."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...gossip.errors import ConfigError
from ...gossip.types import stream
from .live_partition import LiveSampler
from .random_state import seed_of, seeded
from .sources import (
    Batch,
    LoaderSource,
    SampledSource,
    Source,
    is_dataset,
    is_tensors,
    map_tensors,
)
from .task import Task

__all__ = ["Loader", "Sampler", "make_loader"]


class Sampler:
    """Batches of samples, each a pure function of the step, so that any step can be resumed at.

    Passes over the samples, each in an order of its own, are laid end to end and cut into
    batches of equal size: every pass has each sample once, and where its length is no
    multiple of the batch size a batch spans two passes.

    Args:
        indices: The samples this peer may take, integers, axes ``(n_own,)``.
        batch_size: Samples per batch, >= 1; more than there are means all of them.
        seed: The run's seed.
        peer: The peer's id, or whatever names its stream: another name, another order.

    Raises:
        ConfigError: There are no samples, or *batch_size* is less than 1.

    >>> sampler = Sampler(np.arange(10), 4, seed=0, peer="a")
    >>> passes = np.concatenate([sampler.batch(step) for step in range(5)])
    >>> np.sort(passes[:10]).tolist() == np.sort(passes[10:]).tolist() == list(range(10))
    True
    """

    def __init__(
        self, indices: NDArray[np.integer], batch_size: int, *, seed: int, peer: str
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}: it must be 1 or more")
        if len(indices) == 0:
            raise ConfigError(f"peer {peer} has no samples: it must have at least one")
        self._indices = np.asarray(indices, np.int64)
        self._batch_size = min(batch_size, len(indices))
        self._seed = seed
        self._peer = peer
        self._epoch = -1
        self._order = self._indices

    def batch(self, step: int) -> NDArray[np.int64]:
        """Say which samples step number *step* takes.

        Args:
            step: Counted from 0. In order is fast; any order gives the same answers.

        Returns:
            Indices of samples: int64, axes ``(batch_size,)``.

        Raises:
            ConfigError: *step* is negative.
        """
        if step < 0:
            raise ConfigError(f"step is {step}: it must be 0 or more")
        epoch, start = divmod(step * self._batch_size, len(self._indices))
        batch = self._pass(epoch)[start : start + self._batch_size]
        missing = self._batch_size - len(batch)
        rest = self._pass(epoch + 1)[:missing] if missing else batch[:0]
        return np.concatenate([batch, rest])

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Say in which order a pass takes the samples.

        Args:
            epoch: Number of the pass, counted from 0.

        Returns:
            Each sample once: int64, axes ``(n_own,)``.
        """
        return stream(self._seed, self._peer, f"data:{epoch}").permutation(self._indices)

    def _pass(self, epoch: int) -> NDArray[np.int64]:
        if epoch != self._epoch:
            self._order, self._epoch = self.order(epoch), epoch
        return self._order


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """What one step trains on."""

    samples: NDArray[np.int64]
    """Which samples these are: int64, axes ``(batch_size,)``."""

    batch: Batch
    """Their tensors, on the device."""

    arrived: torch.cuda.Event | None
    """When they have arrived there, where a stream of its own brings them."""


class Loader:
    """Gives the batch of each step, the same however many are prepared ahead.

    Args:
        source: Where batches come from; the loader's own from now on.
        device: Where they are wanted.
        prefetch: How many batches are prepared ahead, by a thread that starts with the first
            question; that many at most lie ready. 0: each is prepared when it is asked for, as are
            all that are no parts of tensors, for they may draw by chance.
        augment: Changes a batch, on the device, when it is asked for.
        seed: The run's seed.
        peer: The peer's id. What *augment* draws follows from seed, peer and step.
        live: Says which samples these are, where that follows who is there; nothing is prepared
            ahead then.
    """

    def __init__(
        self,
        source: Source,
        device: torch.device,
        *,
        prefetch: int = 0,
        augment: Callable[[Batch], Batch] | None = None,
        seed: int = 0,
        peer: str = "",
        live: LiveSampler | None = None,
    ) -> None:
        self.live = live
        """To be dealt samples before a step for which that is due; None where all are given."""
        self._source = source
        self._device = device
        self._augment = augment
        self._named = seed, peer
        self._prefetch = prefetch if source.is_plain and live is None else 0
        self._ahead: deque[Future[_Ready]] = deque()
        self._executor: ThreadPoolExecutor | None = None
        # On the training's own stream, a batch would come only after the steps before it.
        self._stream: torch.cuda.Stream | None = None
        if self._prefetch and device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            # Data that lie on the GPU may still be on their way there.
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def samples(self, step: int) -> NDArray[np.int64]:
        """Say which samples a step takes, without taking them.

        Args:
            step: As in `take`.

        Returns:
            Indices of samples: int64, axes ``(batch_size,)``; none where only a user's own loader
            knows them.
        """
        self._go_ahead(step)
        return self._ahead[0].result().samples if self._ahead else self._source.samples(step)

    def take(self, step: int, samples: NDArray[np.int64] | None = None) -> Batch:
        """Give the batch of a step.

        Args:
            step: Counted from 0; with *prefetch*, each that is taken is one more than the last.
            samples: What `samples` says, where it was asked.

        Returns:
            The batch, on the device.

        Raises:
            Exception: What preparing this batch raised, on whatever thread.
        """
        batch = self._taken(step, samples)
        if self._augment is None:
            return batch
        with seeded(seed_of(*self._named, f"augment:{step}"), self._device):
            return self._augment(batch)

    def close(self) -> None:
        """Stop preparing; what is asked for from now on is prepared then."""
        self._prefetch = 0
        self._ahead.clear()
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _taken(self, step: int, samples: NDArray[np.int64] | None) -> Batch:
        self._go_ahead(step)
        if not self._ahead:
            return map_tensors(self._source.batch(step, samples), self._bring)
        ready = self._ahead[0].result()
        self._ahead.popleft()
        if self._executor is not None:
            self._ahead.append(self._executor.submit(self._prepare, step + self._prefetch))
        if ready.arrived is not None:
            training = torch.cuda.current_stream(self._device)
            training.wait_event(ready.arrived)
            # Else its memory may be used for another batch before the step has read it.
            map_tensors(ready.batch, partial(_record_stream, training))
        return ready.batch

    def _go_ahead(self, step: int) -> None:
        """Have batches prepared from *step* on, where it is the first one that is asked for."""
        if self._prefetch and self._executor is None:
            self._executor = ThreadPoolExecutor(1, "rumor-loader")
            steps = range(step, step + self._prefetch)
            self._ahead.extend(self._executor.submit(self._prepare, each) for each in steps)

    def _prepare(self, step: int) -> _Ready:
        samples = self._source.samples(step)
        if self._stream is None:
            batch = map_tensors(self._source.batch(step, samples), self._bring)
            return _Ready(samples, batch, None)
        with torch.cuda.stream(self._stream):
            batch = map_tensors(self._source.batch(step, samples), self._bring)
            return _Ready(samples, batch, self._stream.record_event())

    def _bring(self, part: Tensor) -> Tensor:
        if self._stream is None or part.is_cuda:
            is_pinned = self._device.type == "cuda" and part.is_pinned()
            return part.to(self._device, non_blocking=is_pinned)
        # Only a copy from page-locked memory goes on beside the training.
        return part.pin_memory().to(self._device, non_blocking=True)


def _record_stream(stream: torch.cuda.Stream, part: Tensor) -> Tensor:
    part.record_stream(stream)
    return part


def make_loader(
    task: Task,
    samples: NDArray[np.int64] | None,
    *,
    batch_size: int,
    seed: int,
    peer: str,
    index: int = 0,
    count: int = 1,
    device: torch.device,
    prefetch: int = 0,
    passes: int | None = None,
) -> Loader:
    """Make what gives one peer its batches.

    Args:
        task: Whose data.
        samples: The peer's part of them, as `Task.split` says.
        batch_size: Samples per step, >= 1.
        seed: The run's seed.
        peer: The peer's id.
        index: Which part it is, from 0 to *count* - 1.
        count: Number of parts.
        device: Where batches are wanted.
        prefetch: As `Loader` has it.
        passes: Over all samples in one epoch, where samples are dealt by who is there; else None.

    Raises:
        ConfigError: The part is empty, or a loader of the task's own is to deal samples.
    """
    source: Source
    live: LiveSampler | None = None
    if passes is not None:
        live = _live_sampler(task, samples, batch_size, seed, peer, passes)
        source = SampledSource(live, task.train, collate=task.collate, seed=seed, peer=peer)
    elif is_tensors(task.train) or is_dataset(task.train):
        assert samples is not None
        sampler = Sampler(samples, batch_size, seed=seed, peer=peer)
        source = SampledSource(sampler, task.train, collate=task.collate, seed=seed, peer=peer)
    else:
        source = LoaderSource(
            task.train,
            samples,
            batch_size=batch_size,
            seed=seed,
            peer=peer,
            index=index,
            count=count,
        )
    return Loader(
        source, device, prefetch=prefetch, augment=task.augment, seed=seed, peer=peer, live=live
    )


def _live_sampler(
    task: Task,
    samples: NDArray[np.int64] | None,
    batch_size: int,
    seed: int,
    peer: str,
    passes: int,
) -> LiveSampler:
    if samples is None or not (is_tensors(task.train) or is_dataset(task.train)):
        raise ConfigError(
            f"partition live chooses samples while training goes on, and task {task.name} has a "
            "loader of its own: give it tensors or a dataset, or take another partition"
        )
    return LiveSampler(len(samples), batch_size, seed=seed, peer=peer, passes=passes)
