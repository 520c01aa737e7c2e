"""The training of one peer: a task's model, its optimizer and a part of the data."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from ...gossip import ConfigError
from ...gossip.wire.schema import Schema
from ..config import RunConfig
from ..tasks.data import Loader, batch_length
from ..tasks.lr_schedule import FullRates, parse_lr_schedule
from ..tasks.random_state import seed_all, seed_of
from ..tasks.registry import load_task
from ..tasks.task import Evaluation, Task
from ..tensors.cuda import find_device
from .backward import BackwardSteps

__all__ = ["Learner"]


# If any of these changed, the data would be different or not continue from the same position.
_MADE_FROM: Final = ("task", "seed", "index", "count")


class Learner:
    """A task's model, its optimizer and one peer's part of the data.

    In a journaled run, all random numbers of a step follow from the seed, the peer and the step:
    torch, numpy and Python are seeded before each. Otherwise torch is seeded once.

    Raises:
        ConfigError: The task cannot be built, its data cannot be split as specified, or the device
            is not available.
    """

    def __init__(self, config: RunConfig, peer: str) -> None:
        self._config = config
        self._peer = peer
        task = load_task(config.task, seed=config.seed)
        self.task: Task = task.trained_with(
            optimizer=config.optimizer, momentum=config.momentum, precision=config.precision
        )
        self.steps: int | None = config.steps
        """Number of steps to take; None if only the swarm's clock says when to stop."""
        if config.steps is None and config.total_steps is None:
            self.steps = self.task.steps
        self.taken = 0
        """Number of steps taken, including earlier incarnations."""
        self.samples = 0
        """Number of samples in the last step."""
        self.lr_schedule = config.lr_schedule or self.task.lr_schedule
        """The schedule, as typed by users."""
        self._schedule = parse_lr_schedule(self.lr_schedule)
        self.device = find_device(config.device)
        torch.manual_seed(config.seed)
        self.model: nn.Module = self.task.build().to(self.device)
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        self._optimizer = self.task.make_optimizer(trainable, config.lr or self.task.lr)
        self._full_rates = FullRates(self._optimizer)
        self._backward: BackwardSteps | None = None
        samples = self.task.split(config.partition, config.count, config.seed)[config.index]
        batch_size = config.batch_size or self.task.batch_size
        self._made_from = {name: getattr(config, name) for name in _MADE_FROM} | {
            "partition": config.partition,
            "batch_size": batch_size,
            "samples": len(samples),
        }
        self.loader = Loader(
            self.task,
            samples,
            batch_size=batch_size,
            seed=config.seed,
            device=self.device,
            peer=peer,
        )

    def overlap(self, schema: Schema, ready: Callable[[int], object]) -> None:
        """Take optimizer steps within the backward pass; see `BackwardSteps`."""
        self._backward = BackwardSteps(self.model, self._optimizer, schema, ready)

    def start(self) -> None:
        """Make random numbers of a step, such as in dropout, differ between peers."""
        torch.manual_seed(seed_of(self._config.seed, self._peer, "torch"))

    @property
    def lr(self) -> float:
        """Learning rate of the last step, of the first group of parameters."""
        return float(self._optimizer.param_groups[0]["lr"])

    def is_done(self, swarm_steps: int) -> bool:
        """True if training is over once all peers together have taken *swarm_steps*."""
        total = self._config.total_steps
        over = total is not None and swarm_steps >= total
        return over or (self.steps is not None and self.taken >= self.steps)

    def step(self, *, swarm_steps: int = 0) -> Tensor:
        """Take one optimizer step; return the loss before it, a scalar.

        Learning rate schedules use *swarm_steps*, the steps of all peers as of the last turn.
        """
        if self._config.journal:
            seed = seed_of(self._config.seed, self._peer, f"step:{self.taken}")
            seed_all(seed, self.device)
        if not self._schedule.is_constant:
            total = self._config.total_steps
            done, whole = (self.taken, self.steps) if total is None else (swarm_steps, total)
            self._full_rates.scale(self._schedule.after(done, whole))
        taken = self.loader.take(self.taken)
        self._optimizer.zero_grad()
        loss = self.task.batch_loss(self.model, taken)
        self.task.backward(loss)
        (self._optimizer.step if self._backward is None else self._backward.finish)()
        self.taken += 1
        self.samples = batch_length(taken)
        return loss.detach()

    def evaluation(self) -> Evaluation | None:
        """Return the evaluation on held-out data, if it is due after this step."""
        due = self.taken % self._config.eval_every == 0 or self.taken == self.steps
        return self.task.evaluate(self.model) if due else None

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, next to the model."""
        return {
            "made_from": self._made_from,
            "taken": self.taken,
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's state.

        Raises:
            ConfigError: It trained something else, or on other data; nothing was changed.
        """
        for name, then in state["made_from"].items():
            now = self._made_from.get(name)
            if now != then:
                raise ConfigError(
                    f"{name.replace('_', ' ')} is {now!r} now, and {then!r} in the checkpoint: a "
                    "resumed peer must keep it"
                )
        try:
            self._optimizer.load_state_dict(dict(state["optimizer"]))
        except (ValueError, KeyError) as error:
            raise ConfigError(f"the checkpoint is of another optimizer: {error}") from None
        self.taken = int(state["taken"])
        if self._config.lr is not None:
            self._full_rates.scale(1.0)

    def close(self) -> None:
        """Stop preparing batches; the model is unaffected."""
        if self._backward is not None:
            self._backward.close()
            self._backward = None
