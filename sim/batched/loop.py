"""One step after another, each by the module and the optimizer themselves: any model will do."""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from ...gossip import ConfigError, PeerId
from ...train.tasks.data import Loader, Sampler, make_loader
from ...train.tasks.live_partition import Deal, Epoch, LiveSampler, live_passes
from ...train.tasks.partition import Partition
from ...train.tasks.precision import descend, make_scaler
from ...train.tasks.sources import Batch, is_pair
from ...train.tasks.task import Task
from ...train.tensors.vector import is_finite_tensor
from ...train.timing.lr_schedule import FullRates
from ..kernel.fast_path.levels import AnyLevel
from .parameters import CPU, ParameterMatrix
from .stepper import Failures

__all__ = ["Batches", "Ints", "LoopStepper", "Replica"]

Ints = NDArray[np.int64]

_SCALER = "scaler"


class Batches:
    """The batches of all workers.

    Those of pairs of tensors may be taken one by one or stacked, all others one by one.

    Args:
        task: What is trained.
        ids: The workers, in order.
        partition: How the data is split among them.
        batch_size: Samples per step of each worker, in order; or of all.
        seed: The run's seed.
        parts: Into how many parts the data is split, if not one for each: those who come when all
            are given share them, in turn.
        device: Where the samples lie.
        flipped: Workers whose labels are turned around: class k of K is told to be K - 1 - k.

    Raises:
        ConfigError: The partition is not valid, there are too few samples for it, or there are no
            labels to turn around.
    """

    def __init__(
        self,
        task: Task,
        ids: Sequence[PeerId],
        partition: Partition,
        batch_size: int | Sequence[int],
        seed: int,
        parts: int | None = None,
        *,
        device: torch.device = CPU,
        flipped: frozenset[int] = frozenset(),
    ) -> None:
        found = task.split(partition, parts or len(ids), seed)
        sizes = [batch_size] * len(ids) if isinstance(batch_size, int) else batch_size
        self._device = device
        parted = [found[at % len(found)] for at in range(len(ids))]
        lengths = [size if p is None else len(p) for p, size in zip(parted, sizes, strict=False)]
        self._sizes = np.minimum(lengths, sizes[: len(ids)])
        self.flipped = flipped
        if flipped:
            self._last_class = _last_class(task)
        passes = live_passes(partition)
        self.epoch: Epoch | None = None
        """How long an epoch is, where samples are dealt by who is there; else None."""
        self._live: list[LiveSampler] = []
        if not (is_pair(task.train) and task.augment is None):
            self._loaders: list[Loader] = [
                make_loader(
                    task,
                    parted[at],
                    batch_size=sizes[at],
                    seed=seed,
                    peer=id,
                    index=at % len(found),
                    count=len(found),
                    device=device,
                    passes=passes,
                )
                for at, id in enumerate(ids)
            ]
            self._follow([loader.live for loader in self._loaders])
            return
        self._loaders = []
        self._inputs, self._targets = (side.to(device) for side in task.train)
        if passes is not None:
            n_samples, each = len(self._targets), zip(sizes, ids, strict=False)
            self._follow(
                [LiveSampler(n_samples, b, seed=seed, peer=id, passes=passes) for b, id in each]
            )
            return
        # Of tensors it is known how many there are.
        own = [part for part in parted if part is not None]
        self._samplers = [
            Sampler(part, size, seed=seed, peer=id)
            for part, size, id in zip(own, sizes, ids, strict=False)
        ]
        self._lengths = np.array([len(part) for part in own])
        self._starts = np.cumsum(self._lengths) - self._lengths
        # Workers' passes one after another; whoever comes to the end of one reads on, in vain.
        dtype = np.min_scalar_type(len(self._targets))
        self._orders = np.empty(self._lengths.sum() + max(sizes), dtype)
        self._epochs = np.full(len(ids), -1)

    def deal(self, worker: int, dealt: Deal) -> None:
        """Take note of which samples a worker trains on from now on."""
        self._live[worker].deal(dealt)

    def _follow(self, samplers: Sequence[LiveSampler | None]) -> None:
        """Let samples be dealt by who is there.

        Raises:
            ConfigError: Batches differ in size, and so would the length of an epoch.
        """
        self._live = [sampler for sampler in samplers if sampler is not None]
        epochs = {sampler.epoch for sampler in self._live}
        if len(epochs) > 1:
            raise ConfigError(
                "partition live needs batches of one size: an epoch is so many steps of all "
                "together. Leave batch_sizes out, or take another partition"
            )
        self.epoch = next(iter(epochs), None)

    @property
    def may_draw(self) -> bool:
        """Whether making a batch may take random numbers, or is not for several threads."""
        return bool(self._loaders)

    def one(self, worker: int, step: int) -> Batch:
        """One worker's batch, on the device; of a pair of tensors inputs and targets."""
        if self._loaders:
            return self._loaders[worker].take(step)
        sampler = self._live[worker] if self._live else self._samplers[worker]
        indices = torch.from_numpy(sampler.batch(step)).to(self._device)
        targets = self._targets[indices]
        if worker in self.flipped:
            targets = self._last_class - targets
        return self._inputs[indices], targets

    def sizes(self, workers: Ints) -> Ints:
        """How many samples a batch of each of these workers has."""
        sizes: Ints = self._sizes[workers]
        return sizes

    def indices(self, workers: Ints, steps: Ints) -> NDArray[np.int32]:
        """The samples of several workers' batches, which must be of one size.

        Args:
            workers: Who, each once, axes ``(worker,)``.
            steps: Which step of each.

        Returns:
            What their samplers say, axes ``(worker, batch)``.
        """
        if self._live:
            each = zip(workers.tolist(), steps.tolist(), strict=True)
            return np.stack([self._live[worker].batch(step) for worker, step in each]).astype(
                np.int32
            )
        size, lengths = int(self._sizes[workers[0]]), self._lengths[workers]
        epochs, at = np.divmod(steps * size, lengths)
        for index in np.flatnonzero(self._epochs[workers] != epochs):
            self._begin_pass(int(workers[index]), int(epochs[index]))
        places = (self._starts[workers] + at)[:, None] + np.arange(size)
        found: NDArray[np.int32] = self._orders[places].astype(np.int32)
        for index in np.flatnonzero(at + size > lengths):
            worker, rest = int(workers[index]), int(lengths[index] - at[index])
            self._begin_pass(worker, int(epochs[index]) + 1)
            start = self._starts[worker]
            found[index, rest:] = self._orders[start : start + size - rest]
        return found

    def stacked(self, indices: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        """Batches of one size beside one another: axes ``(worker, batch, ...)``."""
        chosen = torch.from_numpy(indices).to(self._device)
        shape, flat = chosen.shape, chosen.view(-1)
        inputs, targets = self._inputs.index_select(0, flat), self._targets.index_select(0, flat)
        return (
            inputs.view(*shape, *self._inputs.shape[1:]),
            targets.view(*shape, *self._targets.shape[1:]),
        )

    def turned(self, workers: Ints, targets: Tensor) -> Tensor:
        """The targets of `stacked`, those of workers that are `flipped` turned around."""
        rows = torch.tensor([int(worker) in self.flipped for worker in workers])
        rows = rows.to(targets.device)[:, None]
        return torch.where(rows, self._last_class - targets, targets)

    def _begin_pass(self, worker: int, epoch: int) -> None:
        start, length = self._starts[worker], self._lengths[worker]
        self._orders[start : start + length] = self._samplers[worker].order(epoch)
        self._epochs[worker] = epoch


def _last_class(task: Task) -> int:
    """The greatest label of a task whose targets are labels."""
    is_plain = is_pair(task.train) and task.augment is None
    if not is_plain or task.train[1].dtype != torch.int64:
        raise ConfigError(
            f"label-flip needs labels: the samples of task {task.name!r} are no pairs of tensors "
            "with one integer each for a class"
        )
    return int(task.train[1].max())


class LoopStepper:
    """The plain way: a module is laid over a worker's row, and takes a step there.

    Threads share a level's workers among them. Each worker's arithmetic is done by one thread,
    so that their number changes no bit.

    Args:
        rows: The values.
        task: What is trained.
        batches: On what.
        lr: Learning rate.
        ids: Names of the workers.
        seed: The run's seed.
        failures: Where a step that fails is noted.
        threads: How many steps at a time.
    """

    def __init__(
        self,
        rows: ParameterMatrix,
        task: Task,
        batches: Batches,
        lr: float,
        ids: tuple[PeerId, ...],
        seed: int,
        failures: Failures,
        threads: int = 1,
    ) -> None:
        self._batches = batches
        self._failures = failures
        self._seeds = [f"{seed}\0{id}\0torch\0".encode() for id in ids]
        self._device = rows.device
        # Random layers draw from one generator, which threads would share.
        self._draws = _draws(task, rows.module, batches.one(0, 0))
        threads = 1 if self._draws or batches.may_draw else threads
        self._replicas = [Replica(rows, task, lr, own=index > 0) for index in range(threads)]
        for replica in self._replicas[1:]:
            replica.states = self._replicas[0].states
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def take(self, level: AnyLevel) -> None:
        """Take all steps of a level."""
        if self._pool is None:
            self._share(level, 0)
        else:
            list(self._pool.map(lambda index: self._share(level, index), range(self._n_threads)))

    def keep(self, worker: int) -> object:
        """A copy of what a worker's optimizer remembers."""
        return self._replicas[0].keep(worker)

    def restore(self, worker: int, kept: object | None) -> None:
        """Let a worker's optimizer remember what was kept; nothing where that is None."""
        self._replicas[0].restore(worker, kept)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def _n_threads(self) -> int:
        return len(self._replicas)

    def _share(self, level: AnyLevel, index: int) -> None:
        replica, every = self._replicas[index], self._n_threads
        for at in range(index, len(level.workers), every):
            worker, step = level.workers[at], level.steps[at]
            replica.lay_over(worker)
            batch = self._batches.one(worker, step)
            if self._n_threads == 1:
                # What is random in a step is drawn anew for each, whatever was computed before.
                seed = _step_seed(self._seeds[worker], step)
                torch.default_generator.manual_seed(seed)
                if self._device.type == "cuda":
                    torch.cuda.default_generators[self._device.index].manual_seed(seed)
                if self._draws:
                    np.random.seed(seed % 2**32)
                    random.seed(seed)
            if not replica.step(batch):
                self._failures.note(level.orders[at], worker, step)


class Replica:
    """A module and an optimizer that are laid over one worker after another.

    Args:
        rows: The values.
        task: What is trained.
        lr: Learning rate.
        own: Whether it needs a module of its own.
    """

    def __init__(self, rows: ParameterMatrix, task: Task, lr: float, *, own: bool = False) -> None:
        self._rows = rows
        self._task = task
        self.module: nn.Module = deepcopy(rows.module) if own else rows.module
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer: Optimizer = task.optimizer(self.parameters, lr)
        self._full_rates = FullRates(self.optimizer)
        self.states: dict[int, dict[object, object]] = {}
        """State of each worker's optimizer, by position of the parameter, and its scaler."""
        named = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        placed = [p for segment in rows.segments for p in segment.tensors]
        self._targets = [
            [named[name] for name in rows.names[p.spec.name]] for p in [*placed, *rows.local]
        ]
        self._worker = -1

    def lay_over(self, worker: int) -> None:
        """Take a worker's values for the module's, and its optimizer's state likewise."""
        for tied, (_, view) in zip(self._targets, self._rows.tensors(worker), strict=True):
            for target in tied:
                target.data = view
        self._worker = worker

    def keep(self, worker: int) -> object:
        """A copy of what a worker's optimizer remembers."""
        return deepcopy(self.states.get(worker, {}))

    def restore(self, worker: int, kept: object | None) -> None:
        """Let a worker's optimizer remember what was kept; nothing where that is None."""
        assert isinstance(kept, dict | None)
        self.states[worker] = deepcopy(kept) if kept else {}

    def step(self, batch: Batch) -> bool:
        """Take a step there.

        Returns:
            Whether loss and values are finite after it.
        """
        if self._rows.lr_factors:
            self._full_rates.scale(self._rows.lr_factors.get(self._worker, 1.0))
        self.optimizer.zero_grad()
        loss = self._task.batch_loss(self.module, batch)
        with self._lent_state() as scaler:
            descend(loss, self.optimizer, scaler)
        finite = all(is_finite_tensor(part) for part in self._rows.row(self._worker))
        return finite and bool(torch.isfinite(loss.detach()))

    def apply(self) -> None:
        """Let the optimizer use the gradients that lie ready."""
        with self._lent_state():
            self.optimizer.step()

    @contextmanager
    def _lent_state(self) -> Iterator[GradScaler | None]:
        """Lend the optimizer what it remembers of the worker, and keep what it does then."""
        own = self.states.get(self._worker, {})
        scaler = own.get(_SCALER) or make_scaler(self._task.precision, self._rows.device)
        assert isinstance(scaler, GradScaler | None)
        state = self.optimizer.state
        state.clear()
        for index, parameter in enumerate(self.parameters):
            if index in own:
                state[parameter] = own[index]
        yield scaler
        kept: dict[object, object] = {
            index: state[parameter]
            for index, parameter in enumerate(self.parameters)
            if parameter in state
        }
        if scaler is not None:
            kept[_SCALER] = scaler
        self.states[self._worker] = kept


def _step_seed(prefix: bytes, step: int) -> int:
    digest = blake2b(prefix + str(step).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _draws(task: Task, module: nn.Module, batch: Batch) -> bool:
    """Whether a step takes random numbers: dropout does, and what a user's own model may do."""
    trial = deepcopy(module)
    before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    kept = np.random.get_state()
    task.batch_loss(trial, batch)
    drawn = (
        not torch.equal(before[0], torch.get_rng_state())
        or before[1] != random.getstate()
        or before[2] != str(np.random.get_state())
    )
    torch.set_rng_state(before[0])
    random.setstate(before[1])
    np.random.set_state(kept)
    return drawn
