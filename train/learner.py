"""The training of one peer, apart from all exchange: the same in a live run and in its replay."""

import math
import random
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..gossip import ConfigError
from .config import RunConfig
from .loader import Loader
from .lr_schedule import parse_lr_schedule
from .partition import split
from .sampler import Sampler
from .task import Evaluation, Task
from .tasks import BUILT_IN, load_task

__all__ = ["Learner"]

# On a CPU the thread that prepares batches takes its time from the training.
_PREFETCH: Final = {"cuda": 2}

# With another of these, the data would not go on where they stood, or would be others.
_MADE_FROM: Final = ("task", "seed", "partition", "index", "count")


class Learner:
    """A task's model, its optimizer and one peer's part of the data.

    Where the run is journaled, everything random in a step follows from the seed, the peer and the
    step: torch is seeded anew before each, and for a user's own task numpy and Python, too. Else
    torch is seeded once.

    Args:
        config: What to train.
        peer: The peer's id.

    Raises:
        ConfigError: The task cannot be built, its data cannot be split so, or there is no such
            device.
    """

    def __init__(self, config: RunConfig, peer: str) -> None:
        self._config = config
        self._peer = peer
        self._is_users_own = config.task not in BUILT_IN
        self.task: Task = load_task(config.task, seed=config.seed)
        self.steps: int | None = config.steps
        """How many there are to be; None where the swarm's clock alone says when to stop."""
        if config.steps is None and config.total_steps is None:
            self.steps = self.task.steps
        self.taken = 0
        """How many were taken, those of former lives included."""
        self._schedule = parse_lr_schedule(config.lr_schedule)
        self.device = _device(config.device)
        torch.manual_seed(config.seed)
        self.model: nn.Module = self.task.model().to(self.device)
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        self._optimizer = self.task.optimizer(trainable, config.lr or self.task.lr)
        self._full_lrs = [float(group["lr"]) for group in self._optimizer.param_groups]
        samples = split(config.partition, self.task.train[1], config.count, config.seed)[
            config.index
        ]
        batch_size = config.batch_size or self.task.batch_size
        sampler = Sampler(samples, batch_size, seed=config.seed, peer=peer)
        self._made_from = {name: getattr(config, name) for name in _MADE_FROM} | {
            "batch_size": batch_size,
            "samples": len(samples),
        }
        prefetch = config.prefetch
        if prefetch is None:
            prefetch = _PREFETCH.get(self.device.type, 0)
        self._loader = Loader(sampler, self.task.train, self.device, prefetch=prefetch)

    def start(self) -> None:
        """Make what is random in a step, such as dropout, differ from peer to peer."""
        torch.manual_seed(_own_seed(self._config.seed, self._peer, "torch"))

    def batch(self) -> NDArray[np.int64]:
        """The samples of the next step: int64, axes ``(batch_size,)``."""
        return self._loader.samples(self.taken)

    @property
    def lr(self) -> float:
        """Learning rate of the last step, of the first group of parameters."""
        return float(self._optimizer.param_groups[0]["lr"])

    def is_done(self, swarm_steps: int) -> bool:
        """Whether no further step is to be taken.

        Args:
            swarm_steps: What all peers together have taken.
        """
        total = self._config.total_steps
        over = total is not None and swarm_steps >= total
        return over or (self.steps is not None and self.taken >= self.steps)

    def step(self, batch: NDArray[np.int64] | None = None, *, swarm_steps: int = 0) -> Tensor:
        """Take one optimizer step.

        Args:
            batch: What `batch` says, where it was asked for already.
            swarm_steps: What all peers together had taken at this one's last turn; a schedule of
                the learning rate goes by it.

        Returns:
            The loss on the batch before it, a scalar.
        """
        if self._config.journal:
            self._seed_step()
        self._set_lr(swarm_steps)
        inputs, targets = self._loader.take(self.taken, batch)
        self._optimizer.zero_grad()
        loss = self.task.loss(self.model(inputs), targets)
        loss.backward()
        self._optimizer.step()
        self.taken += 1
        return loss.detach()

    def evaluation(self) -> Evaluation | None:
        """The model on held-out data, where it is to be measured after this step."""
        due = self.taken % self._config.eval_every == 0 or self.taken == self.steps
        return self.task.evaluate(self.model) if due else None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the model: optimizer, place in the data, origin."""
        return {
            "made_from": self._made_from,
            "taken": self.taken,
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another life of the same peer stood.

        Raises:
            ConfigError: That one trained something else, or on other data; the first difference is
                named, and nothing has changed.
        """
        for name, then in state["made_from"].items():
            now = self._made_from.get(name)
            if now != then:
                raise ConfigError(
                    f"{name.replace('_', ' ')} is {now!r} now, and {then!r} in the checkpoint: a "
                    "peer that resumes goes on with the same"
                )
        try:
            self._optimizer.load_state_dict(dict(state["optimizer"]))
        except (ValueError, KeyError) as error:
            raise ConfigError(f"the checkpoint is of another optimizer: {error}") from None
        self.taken = int(state["taken"])
        if self._config.lr is not None:
            for group, full in zip(self._optimizer.param_groups, self._full_lrs, strict=True):
                group["lr"] = full

    def close(self) -> None:
        """Prepare no more batches; what was learnt stays."""
        self._loader.close()

    def _set_lr(self, swarm_steps: int) -> None:
        if self._schedule.is_constant:
            return
        total = self._config.total_steps
        done, whole = (self.taken, self.steps) if total is None else (swarm_steps, total)
        factor = self._schedule.factor(done / (whole or math.inf))
        for group, full in zip(self._optimizer.param_groups, self._full_lrs, strict=True):
            group["lr"] = full * factor

    def _seed_step(self) -> None:
        seed = _own_seed(self._config.seed, self._peer, f"step:{self.taken}")
        # Not torch.manual_seed, which takes longer than many a step: it asks after all devices.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        if self._is_users_own:
            # Built-in tasks draw from torch alone.
            random.seed(seed)
            np.random.seed(seed & 0xFFFFFFFF)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device is {name!r}, which is not to be had: {reason}") from None


def _own_seed(seed: int, peer: str, purpose: str) -> int:
    digest = blake2b(f"{seed}\0{peer}\0{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
