"""A callback for the `Trainer` of transformers."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ...gossip.errors import how_to_install
from ..config import PeerConfig
from ..peer import Peer
from .guest import Guest, refuse_deepspeed, settings_of

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        f"{error}; the callback needs transformers: {how_to_install('transformers')}"
    ) from error

__all__ = ["RumorCallback"]

_log = logging.getLogger("rumor")

_STATE: Final = "rumor"
"""Key of the peer's state in trainer_state.json."""

_ANCHOR: Final = "rumor.safetensors"
"""File for the anchor next to it, if the wire needs one."""


class RumorCallback(TrainerCallback):
    """Makes a `Trainer` one peer of a swarm: ``Trainer(..., callbacks=[RumorCallback()])``.

    The peer joins when training begins, mixes and pushes after each optimizer step, and merges with
    the others at the end, for at most ``linger_s`` seconds. Each checkpoint has the peer's state,
    and ``trainer.train(resume_from_checkpoint=True)`` continues as its next incarnation. Settings
    default to the environment, if `rumor run` started the script.

    Args:
        config: All settings, some of which the other arguments change.
        accuracy_metric: Name of a metric of `Trainer.evaluate`, which is added to the peer's
            metrics if present.
        loss_metric: Name of the loss among these metrics.
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
        accuracy_metric: str = "eval_accuracy",
        loss_metric: str = "eval_loss",
        **settings: Any,
    ) -> None:
        self._guest = Guest(settings_of(config, settings), signals=settings.get("signals"))
        self._metrics = accuracy_metric, loss_metric
        self._loss: float | None = None

    @property
    def peer(self) -> Peer | None:
        """The peer, once training has begun."""
        return self._guest.peer

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Found or join a swarm."""
        refuse_deepspeed(args.deepspeed)
        past = _resumed(args, state) if state.global_step > 0 else None
        self._loss = None
        self._guest.begin(given["model"], args.world_size, past)
        self._keep(state)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Record the learning rate before the scheduler changes it."""
        self._guest.about_to_step(given["optimizer"].param_groups)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Mix and push after an optimizer step."""
        if not self._guest.is_inside:
            return
        # Every optimizer step takes this many samples, except the last of an epoch.
        samples = args.train_batch_size * args.gradient_accumulation_steps
        if self._guest.stepped(self._loss, samples):
            control.should_training_stop = True
            control.should_save |= self._guest.was_called
        self._loss = None
        self._keep(state)

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Record the loss that the trainer logs: the mean since the last log."""
        # Logs of an evaluation have no loss.
        self._loss = (given.get("logs") or {}).get("loss", self._loss)

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Report the evaluation's metrics."""
        self._guest.evaluated(given.get("metrics") or {}, *self._metrics)

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Save the anchor, if any, next to the checkpoint."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        anchor = self.peer.state_dict().get("anchor") if self.peer is not None else None
        if anchor is not None and folder.is_dir():
            save_file({str(i): flat for i, flat in enumerate(anchor)}, folder / _ANCHOR)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Merge and leave here if that must happen before the trainer's own end."""
        # Afterwards the best model replaces this one, and that is not the swarm's.
        if self._guest.was_called or (control.should_training_stop and args.load_best_model_at_end):
            self._guest.end()

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Merge with the others and leave."""
        self._guest.end()

    def _keep(self, state: Any) -> None:
        """Include the peer's state in checkpoints from now on."""
        if self.peer is not None:
            told = self.peer.state_dict()
            # The trainer writes JSON; `on_save` writes the anchor.
            told.pop("anchor", None)
            state.stateful_callbacks[_STATE] = told


def _resumed(args: Any, state: Any) -> Mapping[str, Any]:
    """Return the peer's state from the checkpoint, or at least its steps."""
    told = (state.stateful_callbacks or {}).get(_STATE, {})
    if not told:
        _log.warning("the checkpoint was written without a peer: it joins as a newcomer")
    # After a signal, the trainer has taken one more step than its peer.
    told = {**told, "steps": state.global_step}
    named = (args.resume_from_checkpoint, f"{args.output_dir}/checkpoint-{state.global_step}")
    for folder in (each for each in named if isinstance(each, str)):
        path = Path(folder) / _ANCHOR
        if not path.exists():
            continue
        try:
            kept = load_file(path)
        except (OSError, SafetensorError) as error:
            _log.warning("%s is of no use, and the peer joins as a newcomer: %s", path, error)
            continue
        return {**told, "anchor": [kept[name] for name in sorted(kept, key=int)]}
    return told
