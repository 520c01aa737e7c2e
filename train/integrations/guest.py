"""A peer as a guest in a trainer's loop: the common part of all trainers' callbacks."""

import atexit
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from torch import nn

from ...gossip import ConfigError, TransportError
from ...gossip.errors import did_you_mean
from ...gossip.protocol.rule import requirements_of
from ..config import PeerConfig
from ..loop.signals import SignalHandling
from ..loop.telemetry import Loss
from ..peer import Peer
from ..runtime.script.environment import environment, resolve_config
from ..tasks.task import require_one_lr

__all__ = ["Guest", "refuse_deepspeed", "require_whole", "settings_of"]

_log = logging.getLogger("rumor")

_ALONE: Final = (
    "start each process as a peer of its own, such as with `rumor run -n 4 -- python train.py`, "
    "not with torchrun or `accelerate launch`"
)


def settings_of(config: PeerConfig | None, settings: Mapping[str, Any]) -> PeerConfig:
    """Return a callback's settings: *config* with some fields changed."""
    known = [each.name for each in fields(PeerConfig) if not each.name.startswith("_")]
    for name in settings:
        if name not in known:
            hint = did_you_mean(name, known, ": it takes the fields of PeerConfig")
            raise ConfigError(f"the callback takes no {name!r}{hint}")
    config = replace(config or PeerConfig(), **settings)
    if config.checkpoint is not None:
        raise ConfigError(
            "checkpoint is for loops of your own: the trainer writes checkpoints here, and keeps "
            "the peer's state in them; leave it out"
        )
    return config


class Guest:
    """Runs a peer from the first step of a trainer to the last.

    Signals are handled between two steps, so that the trainer can write a checkpoint before the
    peer leaves. With *signals* None, *config* and the environment decide about them.
    """

    def __init__(self, config: PeerConfig, *, signals: bool | None = None) -> None:
        self.peer: Peer | None = None
        """The peer, from the first step on; it remains readable after training."""
        self.is_inside = False
        """True while it is a member."""
        self._config, self._asked = config, signals
        self._signals: SignalHandling | None = None
        self._lr: float | None = None

    def begin(self, model: nn.Module, processes: int, state: Mapping[str, Any] | None) -> Peer:
        """Found or join a swarm with a model that is already on its training device.

        *state* is the peer's state from a checkpoint; None to start afresh.
        """
        require_whole(model, processes)
        if self.is_inside:
            _log.warning("training began anew: the peer of the time before leaves")
            self.end(RuntimeError("training began anew"))
        config = self._config
        if self.peer is not None and config.id is None:
            # The new peer uses the folder of the earlier one.
            config = replace(config, id=self.peer.id)
        asked = resolve_config(config, {"signals": self._asked}, environment()).signals
        # After a signal, the trainer itself ends training, and writes a checkpoint first.
        peer = Peer(model, replace(config, signals=False), checkpoints=False)
        if state is not None:
            peer.load_state_dict(state)
        signals = SignalHandling(peer._stop)
        if asked:
            signals.install()
        try:
            peer.__enter__()
        except BaseException as error:
            signals.remove()
            if isinstance(error, TransportError):
                signals.pass_on()
            raise
        self.peer, self._signals, self.is_inside = peer, signals, True
        atexit.register(self._abandon)
        _log.info("peer %s at %s, with %s", peer.id, peer.address, ", ".join(peer.members))
        return peer

    def about_to_step(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Record the learning rate of the optimizer's current step, from its parameter groups."""
        self._lr = float(groups[0]["lr"])
        if self.peer is not None:
            require_one_lr(self.peer._rule, groups)

    def stepped(self, loss: Loss | None = None, samples: int | None = None) -> bool:
        """Mix and push after an optimizer step; return True if training must end."""
        peer = self._inside()
        if not self.was_called:
            by_samples = requirements_of(peer._rule).by_samples
            peer.step(loss=loss, samples=samples if by_samples else None, lr=self._lr)
        return self.was_called or bool(peer.ended_by)

    @property
    def was_called(self) -> bool:
        """True if a signal has asked this process to end."""
        return self._signals is not None and self._signals.caught is not None

    def evaluated(self, metrics: Mapping[str, Any], accuracy: str, loss: str) -> None:
        """Report the metrics that are called *accuracy* and *loss*, if present."""
        found = {"accuracy": metrics.get(accuracy), "loss": metrics.get(loss)}
        told = {name: float(value) for name, value in found.items() if value is not None}
        if told and self.is_inside:
            self._inside().log(**told)

    def end(self, error: BaseException | None = None) -> None:
        """Merge with the others, unless training has failed or a signal was received, and leave.

        Raises:
            SystemExit: A signal was received, and no handler was installed before.
        """
        if not self.is_inside:
            return
        peer, signals = self._inside(), self._signals
        self.is_inside = False
        atexit.unregister(self._abandon)
        try:
            try:
                if self.was_called:
                    peer.leave()
            finally:
                peer.__exit__(None if error is None else type(error), error, None)
        finally:
            if signals is not None:
                signals.remove()
        if signals is not None and error is None:
            signals.pass_on()

    def _inside(self) -> Peer:
        if self.peer is None or not self.is_inside:
            raise ConfigError("the callback has no peer: it saw no training begin")
        return self.peer

    def _abandon(self) -> None:
        # The process ends, without notice from the trainer.
        error = getattr(sys, "last_value", None) or SystemExit("the process ended while training")
        self.end(error)


def require_whole(model: nn.Module, processes: int) -> None:
    """Raise ConfigError unless a single process has the whole model, on one device."""
    if processes > 1:
        raise ConfigError(
            f"{processes} processes train one model together, and each peer is one process with a "
            f"whole model: {_ALONE}"
        )
    device_map = getattr(model, "hf_device_map", None) or {}
    if len(set(map(str, device_map.values()))) > 1:
        raise ConfigError(
            "device_map has spread the model over several devices, and a peer averages only "
            "models on one device: load it without device_map"
        )


def refuse_deepspeed(is_used: object) -> None:
    """Raise a `ConfigError` if a trainer uses DeepSpeed."""
    if is_used:
        raise ConfigError(
            "DeepSpeed trains weights of its own, which no share would reach: leave it out"
        )
