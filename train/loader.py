"""Batches, prepared ahead on a thread of their own."""

import threading
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .sampler import Sampler

__all__ = ["Batch", "Loader"]

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What one step trains on."""

    samples: NDArray[np.int64]
    """Which samples these are: int64, axes ``(batch_size,)``."""

    pair: Pair
    """Their inputs and targets, on the device; the first axis of both is ``batch_size``."""

    ready: torch.cuda.Event | None
    """When they have arrived there, where a stream of its own brings them."""


class Loader:
    """Gives the batch of each step, the same however many are prepared ahead.

    Args:
        sampler: Says which samples a step takes. It is the loader's own from now on.
        train: Inputs and targets, all of them, which do not change from now on.
        device: Where the batches are wanted.
        prefetch: How many batches are prepared ahead, by a thread that starts with the first
            question; that many at most lie ready. 0: each is prepared when it is asked for.
    """

    def __init__(
        self, sampler: Sampler, train: Pair, device: torch.device, *, prefetch: int
    ) -> None:
        self._sampler = sampler
        self._train = train
        self._device = device
        # A kind of tensor of the user's own may draw by chance, which must be on the thread, and
        # at the moment, for which the seed was set.
        is_plain = all(type(side) is Tensor for side in train)
        self._prefetch = prefetch if is_plain else 0
        self._ready: deque[Batch | BaseException] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
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
            Indices of samples: int64, axes ``(batch_size,)``.
        """
        if self._is_ahead(step):
            return self._first().samples
        return self._sampler.batch(step)

    def take(self, step: int, samples: NDArray[np.int64] | None = None) -> Pair:
        """Give the batch of a step.

        Args:
            step: Counted from 0; each that is taken is one more than the last.
            samples: What `samples` says, where it was asked.

        Returns:
            Inputs and targets, on the device.

        Raises:
            Exception: What preparing this batch raised, on whatever thread.
        """
        if not self._is_ahead(step):
            return self._load(self._sampler.batch(step) if samples is None else samples)
        batch = self._first()
        with self._changed:
            self._ready.popleft()
            self._changed.notify_all()
        if batch.ready is not None:
            training = torch.cuda.current_stream(self._device)
            training.wait_event(batch.ready)
            for side in batch.pair:
                # Else its memory may be used for another batch before the step has read it.
                side.record_stream(training)
        return batch.pair

    def close(self) -> None:
        """Stop preparing; what is asked for from now on is prepared then."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _is_ahead(self, step: int) -> bool:
        """Whether batches are prepared ahead; from *step* on, where this is the first one."""
        if self._prefetch == 0 or self._closed:
            return False
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, args=(step,), name="rumor-loader", daemon=True
            )
            self._thread.start()
        return True

    def _first(self) -> Batch:
        with self._changed:
            self._changed.wait_for(lambda: self._ready)
            first = self._ready[0]
        if isinstance(first, BaseException):
            raise first
        return first

    def _work(self, step: int) -> None:
        prepared: Batch | BaseException | None = None
        while not isinstance(prepared, BaseException):
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._ready) < self._prefetch)
                if self._closed:
                    return
            try:
                prepared = self._prepare(step)
            except BaseException as error:
                # Whoever waits for this batch must hear of it, or would wait for ever.
                prepared = error
            with self._changed:
                if not self._closed:
                    self._ready.append(prepared)
                self._changed.notify_all()
            step += 1

    def _prepare(self, step: int) -> Batch:
        samples = self._sampler.batch(step)
        if self._stream is None:
            return Batch(samples, self._load(samples), None)
        with torch.cuda.stream(self._stream):
            pair = self._load(samples)
            return Batch(samples, pair, self._stream.record_event())

    def _load(self, samples: NDArray[np.int64]) -> Pair:
        indices = torch.from_numpy(samples)
        inputs, targets = (self._bring(side[indices]) for side in self._train)
        return inputs, targets

    def _bring(self, part: Tensor) -> Tensor:
        if self._stream is None or part.is_cuda:
            return part.to(self._device)
        # Only a copy from page-locked memory goes on beside the training.
        return part.pin_memory().to(self._device, non_blocking=True)
