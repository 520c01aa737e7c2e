"""Which samples a peer takes at which step."""

import numpy as np
from numpy.typing import NDArray

from ..gossip.errors import ConfigError
from ..gossip.streams import stream

__all__ = ["Sampler"]


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

    def _pass(self, epoch: int) -> NDArray[np.int64]:
        if epoch != self._epoch:
            rng = stream(self._seed, self._peer, f"data:{epoch}")
            self._order, self._epoch = rng.permutation(self._indices), epoch
        return self._order
