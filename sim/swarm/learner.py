"""The training of one peer of an in-process swarm: any module, any optimizer."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...gossip import PeerId, Protocol, TrainingError
from ...gossip.weight import UNIT, in_floats
from ...topology.hashing import key
from ...train.tasks.data import Loader, make_loader
from ...train.tasks.live_partition import live_passes, training_of
from ...train.tasks.partition import Partition
from ...train.tasks.precision import descend, make_scaler
from ...train.tasks.sources import batch_length
from ...train.tasks.task import Task
from ...train.tensors.vector import Vector
from ..batched.shares import spans_of

__all__ = ["Course", "Learner", "consensus_distance", "merge"]

_CPU = torch.device("cpu")


class Course:
    """What all peers of a swarm learn, and who learns from which of *n* parts of the data.

    Raises:
        ConfigError: The partition is not valid, or there are too few samples for it.
    """

    def __init__(self, task: Task, n: int, partition: Partition, seed: int) -> None:
        self.task = task
        self._parts = task.split(partition, n, seed)
        self._seed = seed
        self._passes = live_passes(partition)

    def build(self, peer: PeerId) -> nn.Module:
        """A peer's model at its start.

        All start from the same draws of torch, and of nothing else: a model that draws from
        elsewhere starts differently at each peer, live too.
        """
        _seed_all(key(self._seed, peer, "model"))
        torch.default_generator.manual_seed(self._seed)
        return self.task.model()

    def learner(self, peer: PeerId, place: int) -> "Learner":
        """One who starts afresh.

        Those who come, by *place*, when all parts are given share them, in turn.
        """
        index, count = place % len(self._parts), len(self._parts)
        make = partial(
            make_loader,
            self.task,
            self._parts[index],
            batch_size=self.task.batch_size,
            seed=self._seed,
            index=index,
            count=count,
            device=_CPU,
        )
        return Learner(self.task, self.build(peer), make, (self._seed, peer), self._passes)


class Learner:
    """A model, its optimizer and one peer's part of the data.

    Everything random in a step follows from the seed, the peer and the step: torch, numpy and
    Python are seeded anew before each.

    Args:
        make_loader: Makes what gives the batches of a *peer*.
        rng_key: The run's seed, and the peer's id.
        passes: As `make_loader` takes it, for the batches of steps.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        make_loader: Callable[..., Loader],
        rng_key: tuple[int, PeerId],
        passes: int | None = None,
    ) -> None:
        self.model = model
        self.steps = 0
        """Optimizer steps taken."""
        self.samples = 0
        """How many the last of them took."""
        self._task = task
        trainable = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = task.optimizer(trainable, task.lr)
        self._scaler = make_scaler(task.precision, _CPU)
        self._loader = make_loader(peer=rng_key[1], passes=passes)
        self._rng_key = rng_key

    def look(self, protocol: Protocol) -> None:
        """Deal samples before the next step, where they are dealt by who is there."""
        live = self._loader.live
        if live is not None and live.is_due(protocol.swarm_steps):
            live.look(protocol.swarm_steps, training_of(protocol), self.steps)

    def step(self) -> None:
        """Take one optimizer step.

        Raises:
            TrainingError: The loss is not finite; the step was taken.
        """
        _seed_all(key(*self._rng_key, f"step:{self.steps}"))
        batch = self._loader.take(self.steps)
        self._optimizer.zero_grad()
        loss = self._task.batch_loss(self.model, batch)
        descend(loss, self._optimizer, self._scaler)
        self.steps += 1
        self.samples = batch_length(batch)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingError(f"the loss of step {self.steps} is {value:g}: lower the lr")

    def keep(self) -> dict[str, Any]:
        """A copy of all that a checkpoint has of it."""
        scaler = None if self._scaler is None else self._scaler.state_dict()
        kept = {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}
        return deepcopy(kept | {"scaler": scaler, "steps": self.steps})

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; the model's tensors stay where they are."""
        self.model.load_state_dict(kept["model"])
        self._optimizer.load_state_dict(deepcopy(kept["optimizer"]))
        if self._scaler is not None:
            self._scaler.load_state_dict(kept["scaler"])
        self.steps = kept["steps"]


def _seed_all(word: int) -> None:
    # Not torch.manual_seed, which takes longer than many a step: it asks after all devices.
    torch.default_generator.manual_seed(word >> 1)
    # What users' own tasks may draw from.
    random.seed(word)
    np.random.seed(word & 0xFFFFFFFF)


def merge(models: Sequence[tuple[Vector, Sequence[int]]]) -> dict[str, Tensor]:
    """Average models by weight, shard by shard: in float64, rounded to their dtypes once.

    Args:
        models: At least one, and how much each shard of it counts, in the order in which they are
            summed. Where none has any weight of a shard, all count alike.

    Returns:
        A state_dict that shares no memory with any of them. Tensors that are not shared, such as
        integer ones, of which a mean means nothing, are the heaviest model's (of two, the first).
    """
    vector, weights = max(models, key=lambda model: sum(model[1]))
    merged = tuple(flat.clone() for flat in vector.flats)
    for shard in range(len(weights)):
        for span in spans_of(vector.schema, shard, merged):
            flats = [(span.of(each.flats[span.part]), held[shard]) for each, held in models]
            numbers = span.of(merged[span.part])
            numbers.copy_(_mean(flats))
            span.put(merged[span.part], numbers)
    return {
        name: v for name, v in vector.layout.state_dict(merged).items() if isinstance(v, Tensor)
    }


def consensus_distance(vectors: Sequence[Vector]) -> float:
    """``sqrt(mean_i |x_i - mean|^2) / |mean|`` with the plain mean; 0 where all are equal.

    Without the divisor where the mean is 0.
    """
    rows = torch.stack(
        [torch.cat([flat.detach().cpu().double() for flat in v.flats]) for v in vectors]
    )
    mean = rows.mean(dim=0)
    spread = sqrt(float((rows - mean).square().sum()) / len(rows))
    size = sqrt(float(mean.square().sum()))
    return spread / size if size else spread


def _mean(values: Sequence[tuple[Tensor, int]]) -> Tensor:
    values = [each for each in values if each[1]] or [(value, UNIT) for value, _ in values]
    first = values[0][0]
    # What all have alike must come out as it went in.
    if all(torch.equal(value, first) for value, _ in values):
        return first
    mean = torch.zeros_like(first, dtype=torch.float64)
    weights, weight = in_floats([held for _, held in values])
    for (value, _), part in zip(values, weights, strict=True):
        mean += value.double() * part
    return (mean / weight).to(first.dtype)
