"""Training data: their forms, batches and augmentation."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset, TensorDataset, default_collate

from ...gossip.errors import ConfigError, TrainingError
from ...gossip.rules.plugin import as_raised
from ...gossip.types import stream
from .random_state import seed_of, seeded

if TYPE_CHECKING:
    from .task import Task

__all__ = [
    *("Batch", "Collate", "Data", "Loader", "Sampler", "batch_length", "batches_in_order"),
    *("check_data", "is_pair", "is_tensors", "map_tensors", "n_samples_of", "targets_of"),
    "unwrapped",
]

Indices: TypeAlias = NDArray[np.int64]

Batch: TypeAlias = Any
"""Input of a step: a tensor, or tuples, lists and dicts of tensors, whose first axis is
``batch_size``."""

Collate: TypeAlias = Callable[[list[Any]], Batch]
"""Makes a batch from a list of samples."""

Data: TypeAlias = Any
"""A tuple or a dict of tensors, whose first axis is ``n_samples``; or a map-style dataset, with
``__len__`` and ``__getitem__``."""

_FORMS: Final = "a tuple or dict of tensors, or a dataset with __len__ and __getitem__"


def is_tensors(data: Data) -> bool:
    """True if data are a tuple or a dict of tensors."""
    if not isinstance(data, tuple | list | Mapping):
        return False
    sides = _sides(data).values()
    return len(sides) > 0 and all(isinstance(side, Tensor) for side in sides)


def is_pair(data: Data) -> TypeGuard[tuple[Tensor, Tensor]]:
    """True if data, or a batch, are two tensors: inputs and targets."""
    return isinstance(data, tuple | list) and is_tensors(data) and len(data) == 2


def check_data(field: str, data: Data) -> None:
    """Raise ConfigError unless the data in a task's *field* have a supported form."""
    if is_tensors(data):
        sides = _sides(data)
        if any(side.ndim == 0 for side in sides.values()):
            raise ConfigError(
                f"{field} has a tensor without axes: the first one is that of samples"
            )
        lengths = {name: len(side) for name, side in sides.items()}
        if len({*lengths.values()}) > 1 or 0 in lengths.values():
            told = ", ".join(f"{length} of {name!r}" for name, length in lengths.items())
            if is_pair(data):
                told = f"{lengths[0]} inputs and {lengths[1]} targets"
            raise ConfigError(f"{field} has {told}: it must have as many of each, and at least one")
        return
    is_dataset = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if not is_dataset or isinstance(data, tuple | list | Mapping | type | np.ndarray):
        what, hint = type(data).__name__, ""
        if isinstance(data, tuple | list) and data:
            what += f" of {', '.join(type(side).__name__ for side in data[:3])}"
            hint = " (torch.as_tensor makes a tensor of an array)"
        elif hasattr(data, "dataset"):
            hint = ", such as its .dataset"
        elif hasattr(data, "__getitem__"):
            hint = f" (a {what} has no __len__)"
        raise ConfigError(f"{field} is a {what}: it must be {_FORMS}{hint}")
    if len(data) < 1:
        raise ConfigError(f"{field} is a dataset without samples: it must have at least one")


def _sides(data: Data) -> dict[Any, Tensor]:
    return dict(data) if isinstance(data, Mapping) else dict(enumerate(data))


def unwrapped(data: Data) -> Data:
    """Return the tensors of a `TensorDataset`, or of a `Subset` of one; other data as they are."""
    # A subclass may change its samples.
    if type(data) is TensorDataset:
        return data.tensors
    if type(data) is Subset and is_tensors(held := unwrapped(data.dataset)):
        return map_tensors(held, lambda side: side[list(data.indices)])
    return data


def n_samples_of(data: Data) -> int:
    """Return the number of samples."""
    return len(next(iter(_sides(data).values())) if is_tensors(data) else data)


def targets_of(data: Data) -> Tensor | NDArray[Any] | None:
    """Return the targets for partitions by class: one value per sample, in order, or None."""
    if is_pair(data):
        return data[1]
    # The attribute of torchvision's datasets.
    found = getattr(data, "targets", None)
    if found is None and is_pair(sides := getattr(data, "tensors", None)):
        found = sides[1]
    return found if found is None or isinstance(found, Tensor) else np.asarray(found)


def map_tensors(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """Return the batch with *change* applied to each tensor in it."""
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
    """Return the number of samples of a batch, or raise TrainingError if it has no tensors."""
    tensors: list[Tensor] = []

    def note(side: Tensor) -> Tensor:
        tensors.append(side)
        return side

    map_tensors(batch, note)
    if not tensors:
        raise TrainingError(f"a batch is a {type(batch).__name__} without a tensor in it")
    return len(tensors[0]) if tensors[0].ndim else 1


class Sampler:
    """Batches of samples, a function of the step, so that training can resume at any step.

    Passes over the samples, each in its own order, are concatenated and cut into batches of equal
    size.

    Args:
        indices: The samples this peer may take, integers, axes ``(n_own,)``.
        batch_size: Samples per batch, limited to the number of samples.
        seed: The run's seed.
        peer: The peer's id, on which the order depends.

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
        self._named = seed, peer
        self._epoch = -1
        self._order = self._indices

    def batch(self, step: int) -> Indices:
        """Return the samples of a step, counted from 0: int64, axes ``(batch_size,)``."""
        if step < 0:
            raise ConfigError(f"step is {step}: it must be 0 or more")
        epoch, start = divmod(step * self._batch_size, len(self._indices))
        batch = self._pass(epoch)[start : start + self._batch_size]
        missing = self._batch_size - len(batch)
        rest = self._pass(epoch + 1)[:missing] if missing else batch[:0]
        # A copy in any case, which the caller may change.
        return np.concatenate([batch, rest])

    def order(self, epoch: int) -> Indices:
        """Return each sample once, in the order of a pass: int64, axes ``(n_own,)``."""
        return stream(*self._named, f"data:{epoch}").permutation(self._indices)

    def _pass(self, epoch: int) -> Indices:
        # Nearly all steps are of the same pass as the one before.
        if epoch != self._epoch:
            self._order, self._epoch = self.order(epoch), epoch
        return self._order


class Loader:
    """Loads the batch of each step for one peer.

    Args:
        task: The task, whose data must not change from now on.
        samples: The peer's samples, from `Task.split`.
        batch_size: Samples per step.
        seed: Random numbers in a dataset and ``Task.augment`` depend on seed, peer and step.
        peer: The peer's id.
        device: Device of the batches.
    """

    def __init__(
        self,
        task: "Task",
        samples: Indices,
        *,
        batch_size: int,
        seed: int,
        peer: str,
        device: torch.device,
    ) -> None:
        self._task, self._device, self._named = task, device, (seed, peer)
        self.sampler = Sampler(samples, batch_size, seed=seed, peer=peer)
        # A user's own subclass of Tensor may draw random numbers.
        self._is_plain = is_tensors(task.train) and all(
            type(side) is Tensor for side in _sides(task.train).values()
        )

    def take(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0, on the device."""
        task, samples = self._task, self.sampler.batch(step)
        with nullcontext() if self._is_plain else seeded(seed_of(*self._named, f"batch:{step}")):
            batch = _chosen(task.train, samples, task.collate)
        batch = map_tensors(batch, lambda part: part.to(self._device))
        if task.augment is None:
            return batch
        with seeded(seed_of(*self._named, f"augment:{step}"), self._device):
            return task.augment(batch)


def _chosen(data: Data, samples: Indices, collate: Collate | None) -> Batch:
    if is_tensors(data):
        chosen = torch.from_numpy(samples)
        return map_tensors(data, lambda side: side[chosen])
    indices = samples.tolist()
    try:
        found = (
            data.__getitems__(indices)
            if hasattr(data, "__getitems__")
            else [data[index] for index in indices]
        )
        return (collate or default_collate)(found)
    except Exception as error:  # a user's dataset may raise anything
        raise TrainingError(
            f"samples {indices[0]}, ... of the {type(data).__name__} cannot be read: "
            f"{as_raised(error)}"
        ) from error


def batches_in_order(
    data: Data, batch_size: int, collate: Collate | None = None
) -> Iterator[Batch]:
    """Iterate once over all samples of held-out data, in order."""
    n_samples = n_samples_of(data)
    for start in range(0, n_samples, batch_size):
        end = min(start + batch_size, n_samples)
        if is_tensors(data):
            yield map_tensors(data, lambda side: side[start:end])  # noqa: B023
        else:
            yield _chosen(data, np.arange(start, end), collate)
