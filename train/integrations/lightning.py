"""A callback for the `Trainer` of Lightning."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..config import PeerConfig
from ..peer import Peer
from .guest import Guest, refuse_deepspeed, settings_of

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ImportError(
            f"{error}; the callback needs Lightning: pip install 'rumor[lightning]'"
        ) from error

__all__ = ["RumorCallback"]


class RumorCallback(Callback):
    """Makes a `Trainer` one peer of a swarm: ``Trainer(..., callbacks=[RumorCallback()])``.

    The peer joins when training begins, takes its turn after each step of the optimizer, and merges
    with the others at the end, for ``linger_s`` seconds at most. Each checkpoint has the peer's
    state, and ``trainer.fit(module, ckpt_path="last")`` goes on as its next incarnation. What is
    not given is taken from the environment, where `rumor run` started the script.

    Args:
        config: All settings; the others here change some of them.
        accuracy_metric: What the module logs on validation, told to the peer's metrics.
        loss_metric: Likewise.
        samples: How many a step takes, for rules that weigh steps by them.
        settings: Fields of a `PeerConfig`, such as ``join="tcp://node-a:7700"`` and
            ``rule=GoSGD(p=0.1)``.

    Raises:
        ConfigError: There is no such field, or its value is out of range. When training begins: the
            trainer cannot be a peer, and the message says why.
    """

    def __init__(
        self,
        config: PeerConfig | None = None,
        *,
        accuracy_metric: str = "val_acc",
        loss_metric: str = "val_loss",
        samples: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._guest = Guest(settings_of(config, settings), signals=settings.get("signals"))
        self._metrics, self._samples = (accuracy_metric, loss_metric), samples
        self._past: Mapping[str, Any] | None = None
        self._steps = 0
        self._loss: Tensor | None = None

    @property
    def peer(self) -> Peer | None:
        """The peer, once training has begun."""
        return self._guest.peer

    @property
    def state_key(self) -> str:
        """Where in a checkpoint the peer's state is."""
        return "rumor"

    def state_dict(self) -> dict[str, Any]:
        """The peer's state, for a checkpoint."""
        return {} if self.peer is None else self.peer.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Note what a checkpoint says; training begins with it."""
        self._past = state_dict

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Found or join."""
        refuse_deepspeed("DeepSpeed" in type(trainer.strategy).__name__)
        past, self._past = self._past, None
        self._steps, self._loss = trainer.global_step, None
        if past is None and self._steps:
            past = {"steps": self._steps}
        self._guest.begin(pl_module, trainer.world_size, past)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note the learning rate before the scheduler changes it."""
        self._guest.about_to_step(optimizer.param_groups)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Mix and push, where the optimizer has taken a step."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, torch.Tensor):
            # Each batch's part of the mean, where gradients are accumulated.
            self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
        if trainer.global_step == self._steps or not self._guest.is_inside:
            return
        self._steps = trainer.global_step
        if self._guest.stepped(self._loss, self._samples):
            trainer.should_stop = True
        self._loss = None
        if self._guest.was_called:
            # It passes the signal on to Lightning's own handler, or else exits.
            self._guest.end()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Tell what was measured."""
        self._guest.evaluated(trainer.callback_metrics, *self._metrics)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Merge with the others and leave."""
        self._guest.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave: what went wrong here must not cost the others its weight."""
        self._guest.end(exception)
