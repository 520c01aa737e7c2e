"""A callback for the `Trainer` of Lightning."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...gossip.errors import how_to_install
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
            f"{error}; the callback needs Lightning: {how_to_install('lightning')}"
        ) from error

__all__ = ["RumorCallback"]


class RumorCallback(Callback):
    """Makes a `Trainer` one peer of a swarm: ``Trainer(..., callbacks=[RumorCallback()])``.

    The peer joins when training begins, mixes and pushes after each optimizer step, and merges with
    the others at the end, for at most ``linger_s`` seconds. Each checkpoint has the peer's state,
    and ``trainer.fit(module, ckpt_path="last")`` continues as its next incarnation. Settings
    default to the environment, if `rumor run` started the script.

    Args:
        config: All settings, some of which the other arguments change.
        accuracy_metric: Name of a value that the module logs on validation, which is added to the
            peer's metrics.
        loss_metric: Name of the loss that the module logs on validation.
        samples: Samples per step, for rules that weight steps by them.
        settings: Fields of a `PeerConfig`, such as ``join="tcp://node-a:7700"`` and
            ``rule=GoSGD(p=0.1)``.

    Raises:
        ConfigError: A field does not exist, or its value is out of range. When training begins: the
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
        """Key of the peer's state in a checkpoint."""
        return "rumor"

    def state_dict(self) -> dict[str, Any]:
        """Return the peer's state for a checkpoint."""
        return {} if self.peer is None else self.peer.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Store the state from a checkpoint, with which training begins."""
        self._past = state_dict

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Found or join a swarm."""
        refuse_deepspeed("DeepSpeed" in type(trainer.strategy).__name__)
        past, self._past = self._past, None
        self._steps, self._loss = trainer.global_step, None
        if past is None and self._steps:
            past = {"steps": self._steps}
        self._guest.begin(pl_module, trainer.world_size, past)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Record the learning rate before the scheduler changes it."""
        self._guest.about_to_step(optimizer.param_groups)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Mix and push if the optimizer has taken a step."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, torch.Tensor):
            # With accumulated gradients, each batch contributes its part of the mean.
            self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
        if trainer.global_step == self._steps or not self._guest.is_inside:
            return
        self._steps = trainer.global_step
        if self._guest.stepped(self._loss, self._samples):
            trainer.should_stop = True
        self._loss = None
        if self._guest.was_called:
            # This passes the signal on to Lightning's own handler, or exits.
            self._guest.end()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the validation metrics."""
        self._guest.evaluated(trainer.callback_metrics, *self._metrics)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Merge with the others and leave."""
        self._guest.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave: a failure here must not cost the others this peer's weight."""
        self._guest.end(exception)
