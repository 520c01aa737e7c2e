"""Where batches come from: tensors, a dataset, or a loader of the user's own."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import default_collate

from ...gossip.errors import ConfigError, TrainingError
from .random_state import seed_of, seeded

__all__ = [
    "Batch",
    "Collate",
    "Data",
    "LoaderContext",
    "LoaderSource",
    "SampledSource",
    "Sampling",
    "Source",
    "batch_length",
    "batches_in_order",
    "check_data",
    "is_dataset",
    "is_pair",
    "is_tensors",
    "map_tensors",
    "n_samples_of",
    "targets_of",
]

Indices: TypeAlias = NDArray[np.int64]

Batch: TypeAlias = Any
"""What a step takes: a tensor, or tuples, lists and dicts of them, the first axis of which is
``batch_size``."""

Collate: TypeAlias = Callable[[list[Any]], Batch]
"""Samples to a batch."""

Data: TypeAlias = Any
"""In one of these forms:

- tensors, a tuple or a dict of them, the first axis of all ``n_samples``;
- a map-style dataset, which has ``__len__`` and ``__getitem__``;
- a loader factory: `LoaderContext` to an iterable of batches, such as a `DataLoader`.
"""

_FORMS: Final = (
    "a tuple or dict of tensors, a dataset with __len__ and __getitem__, or a function from a "
    "LoaderContext to an iterable of batches"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderContext:
    """What a loader factory is asked for: one pass over one peer's samples."""

    samples: Indices | None
    """The peer's part of the data, int64, axes ``(n_own,)``; None where the task has no
    ``n_samples``, and for held-out data."""
    batch_size: int
    """Samples per batch."""
    seed: int
    """For the order of this pass of this peer; from 0 to 2^63 - 1. Torch, numpy and Python are
    seeded from it, too, whenever a batch is made."""
    epoch: int
    """Number of the pass, counted from 0."""
    index: int
    """Which part of the data it is, from 0 to ``count`` - 1."""
    count: int
    """Number of parts."""


def is_tensors(data: Data) -> bool:
    """Whether data are a tuple or a dict of tensors."""
    if isinstance(data, tuple | list):
        return len(data) > 0 and all(isinstance(side, Tensor) for side in data)
    return (
        isinstance(data, Mapping)
        and len(data) > 0
        and all(isinstance(side, Tensor) for side in data.values())
    )


def is_pair(data: Data) -> TypeGuard[tuple[Tensor, Tensor]]:
    """Whether data, or a batch, are two tensors: inputs and targets."""
    return isinstance(data, tuple | list) and is_tensors(data) and len(data) == 2


def is_dataset(data: Data) -> bool:
    """Whether data are a map-style dataset."""
    return (
        not isinstance(data, tuple | list | Mapping | type)
        and hasattr(data, "__len__")
        and hasattr(data, "__getitem__")
    )


def check_data(field: str, data: Data) -> None:
    """See that data have one of the forms that there are.

    Args:
        field: Of the task, for messages.
        data: What it has.

    Raises:
        ConfigError: They have none, or no samples, or tensors of different lengths.
    """
    if is_tensors(data):
        _check_tensors(field, data)
    elif is_dataset(data):
        if len(data) < 1:
            raise ConfigError(f"{field} is a dataset without samples: it must have at least one")
    elif not callable(data) or isinstance(data, type):
        kind = type(data).__name__
        hint = ""
        if hasattr(data, "__iter__") and not isinstance(data, tuple | list | Mapping | str):
            hint = ", where each peer makes a loader of its own"
        raise ConfigError(f"{field} is a {kind}: it must be {_FORMS}{hint}")


def _check_tensors(field: str, data: Data) -> None:
    sides = _sides(data)
    if any(side.ndim == 0 for side in sides.values()):
        raise ConfigError(f"{field} has a tensor without axes: the first one is that of samples")
    lengths = {name: len(side) for name, side in sides.items()}
    n_samples = next(iter(lengths.values()))
    if set(lengths.values()) == {n_samples} and n_samples > 0:
        return
    if is_pair(data):
        raise ConfigError(
            f"{field} has {n_samples} inputs and {lengths[1]} targets: "
            "it must have one target per input, and at least one"
        )
    told = ", ".join(f"{length} of {name!r}" for name, length in lengths.items())
    raise ConfigError(f"{field} has {told}: it must have as many of each, and at least one")


def _sides(data: Data) -> dict[Any, Tensor]:
    return dict(data) if isinstance(data, Mapping) else dict(enumerate(data))


def n_samples_of(data: Data) -> int | None:
    """How many samples there are; None where only a loader would know."""
    if is_tensors(data):
        return len(next(iter(_sides(data).values())))
    return len(data) if is_dataset(data) else None


def targets_of(data: Data) -> Tensor | NDArray[Any] | None:
    """What partitions by class go by: one value per sample, in order; None where nobody knows.

    Those are the second of two tensors, or of a `TensorDataset`, and the ``targets`` that
    torchvision's datasets have.
    """
    if is_pair(data):
        return data[1]
    found = getattr(data, "targets", None)
    if found is None and is_pair(sides := getattr(data, "tensors", None)):
        found = sides[1]
    if found is None or isinstance(found, Tensor):
        return found
    return np.asarray(found)


def map_tensors(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The same batch with each tensor in it changed; what is none stays as it is."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: map_tensors(side, change) for name, side in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(side, change) for side in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(map_tensors(side, change) for side in batch)
    return batch


def batch_length(batch: Batch) -> int:
    """How many samples a batch has: the first axis of its first tensor.

    Raises:
        TrainingError: There is no tensor in it.
    """
    lengths: list[int] = []

    def note(side: Tensor) -> Tensor:
        lengths.append(len(side) if side.ndim else 1)
        return side

    map_tensors(batch, note)
    if not lengths:
        raise TrainingError(f"a batch is a {type(batch).__name__} without a tensor in it")
    return lengths[0]


class Sampling(Protocol):
    """The part of a `Sampler` that sources need."""

    def batch(self, step: int) -> Indices:
        """Which samples a step takes."""


class Source(Protocol):
    """One peer's batches as they come, before they are moved to a device and augmented."""

    @property
    def is_plain(self) -> bool:
        """Whether batches are parts of tensors, which any thread may cut out at any time."""

    def samples(self, step: int) -> Indices:
        """Which samples a step takes; none where only a loader knows."""

    def batch(self, step: int, samples: Indices | None = None) -> Batch:
        """The batch of a step.

        Args:
            step: Counted from 0, in any order.
            samples: What `samples` says, where it was asked.
        """


class SampledSource:
    """Batches of tensors or of a map-style dataset.

    Args:
        sampler: Says which samples a step takes. It is the source's own from now on.
        data: Tensors or a dataset, which do not change from now on.
        collate: Makes a batch of a dataset's samples; torch's ``default_collate`` unless given.
        seed: The run's seed.
        peer: The peer's id. What a dataset draws follows from seed, peer and step.
    """

    def __init__(
        self,
        sampler: Sampling,
        data: Data,
        *,
        collate: Collate | None = None,
        seed: int = 0,
        peer: str = "",
    ) -> None:
        self._sampler = sampler
        self._data = data
        self._collate = collate
        self._named = seed, peer
        # A kind of tensor of the user's own may draw by chance.
        self._is_plain = is_tensors(data) and all(
            type(side) is Tensor for side in _sides(data).values()
        )

    @property
    def is_plain(self) -> bool:
        """Whether batches are parts of tensors, which any thread may cut out at any time."""
        return self._is_plain

    def samples(self, step: int) -> Indices:
        """Which samples a step takes: int64, axes ``(batch_size,)``."""
        return self._sampler.batch(step)

    def batch(self, step: int, samples: Indices | None = None) -> Batch:
        """The batch of a step, see `Source`."""
        samples = self._sampler.batch(step) if samples is None else samples
        if self._is_plain:
            return _chosen(self._data, samples, self._collate)
        with seeded(seed_of(*self._named, f"batch:{step}")):
            return _chosen(self._data, samples, self._collate)


def _chosen(data: Data, samples: Indices, collate: Collate | None) -> Batch:
    """A batch of these samples."""
    if is_tensors(data):
        indices = torch.from_numpy(samples)
        return map_tensors(data, lambda side: side[indices])
    if hasattr(data, "__getitems__"):
        found = data.__getitems__(samples.tolist())
    else:
        found = [data[index] for index in samples.tolist()]
    return (collate or default_collate)(found)


class LoaderSource:
    """Batches of a user's own loaders, one of which is made for each pass.

    Any step may be asked for: batches that come before it are made and dropped, those of the same
    pass where loaders have a length, else all from the start.

    Args:
        factory: Makes a loader.
        samples: The peer's part of the data; None where nobody knows what there is.
        batch_size: Samples per batch, >= 1.
        seed: The run's seed.
        peer: The peer's id. What loaders draw follows from seed, peer, pass and batch.
        index: Which part of the data it is.
        count: Number of parts.
    """

    is_plain = False

    def __init__(
        self,
        factory: Callable[[LoaderContext], Iterable[Batch]],
        samples: Indices | None,
        *,
        batch_size: int,
        seed: int,
        peer: str,
        index: int = 0,
        count: int = 1,
    ) -> None:
        self._factory = factory
        self._samples = samples
        self._batch_size = batch_size
        self._named = seed, peer
        self._part = index, count
        self._batches: Iterator[Batch] | None = None
        self._length: int | None = None
        self._epoch = self._taken = self._step = 0

    def samples(self, step: int) -> Indices:
        """None: only the loader knows."""
        return np.empty(0, np.int64)

    def batch(self, step: int, samples: Indices | None = None) -> Batch:
        """The batch of a step, see `Source`.

        Raises:
            TrainingError: A pass has no batch.
        """
        if self._batches is None or step < self._step:
            self._open(epoch=0, step=0)
            epochs = 0 if self._length is None else step // self._length
            if epochs and self._length is not None:
                self._open(epoch=epochs, step=epochs * self._length)
        while self._step < step:
            self._next()
        return self._next()

    def _open(self, *, epoch: int, step: int) -> None:
        """Begin a pass, the first batch of which is that of *step*."""
        self._epoch, self._step, self._taken = epoch, step, 0
        context = LoaderContext(
            samples=self._samples,
            batch_size=self._batch_size,
            seed=seed_of(*self._named, f"loader:{epoch}"),
            epoch=epoch,
            index=self._part[0],
            count=self._part[1],
        )
        with seeded(context.seed):
            loader = self._factory(context)
            self._batches = iter(loader)
        try:
            self._length = len(loader) or None  # type: ignore[arg-type]
        except TypeError:
            # What is streamed has none.
            self._length = None

    def _next(self) -> Batch:
        assert self._batches is not None
        while True:
            with seeded(seed_of(*self._named, f"loader:{self._epoch}:{self._taken}")):
                for batch in self._batches:
                    self._taken += 1
                    self._step += 1
                    return batch
            if not self._taken:
                raise TrainingError(
                    f"the loader of pass {self._epoch} for peer {self._named[1]} gave no batch: "
                    "it must give at least one"
                )
            self._open(epoch=self._epoch + 1, step=self._step)


def batches_in_order(
    data: Data, batch_size: int, collate: Collate | None = None
) -> Iterator[Batch]:
    """All samples of held-out data, in order, once.

    Args:
        data: In one of their forms.
        batch_size: Samples per batch, >= 1.
        collate: As a task has it.
    """
    n_samples = n_samples_of(data)
    if n_samples is None:
        yield from data(
            LoaderContext(samples=None, batch_size=batch_size, seed=0, epoch=0, index=0, count=1)
        )
        return
    for start in range(0, n_samples, batch_size):
        end = min(start + batch_size, n_samples)
        if is_tensors(data):
            yield map_tensors(data, lambda side: side[start:end])  # noqa: B023
        else:
            yield _chosen(data, np.arange(start, end), collate)
