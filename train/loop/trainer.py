"""Train a task as one peer of a swarm, and write a folder with the results."""

import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from torch import nn

from ...gossip import ConfigError, RumorError, TrainingError, TransportError
from ...gossip.protocol.leave import STOPPED
from ...gossip.protocol.rule import requirements_of
from ..config import CHECKPOINTS, CheckpointConfig, PeerConfig, RunConfig
from ..peer import Peer
from ..runtime.script.cluster import take_place
from ..storage.files import check_folder
from ..storage.incarnation import INCARNATION_FILE, last_incarnation
from ..tasks.task import require_optimizer
from .learner import Learner
from .telemetry import Report

__all__ = ["OPTIONS", "RunConfig", "run"]


_log = logging.getLogger("rumor")


OPTIONS: Final = "options.json"
"""Options of the command line, in a peer's folder, for a later resume."""

_TRACES: Final = (INCARNATION_FILE, "ledger.jsonl", "peer.json")


def run(
    config: RunConfig,
    peer_config: PeerConfig,
    *,
    stop: threading.Event | None = None,
) -> Report:
    """Train as one peer until its steps are done or *stop* is set; ``peer.json`` also says how it
    ended, if there is a folder.

    Raises:
        ConfigError: A setting is out of range, the folder holds another run, or the run to resume
            was trained with other settings or is still running; nothing was written.
        RumorError, OSError: The run failed.
    """
    out = peer_config.out
    if out is None and config.resume:
        raise ConfigError("to resume takes a folder: say with out from which")
    if out is None and config.journal:
        raise ConfigError("a journal needs a folder: say where with out")
    if out is not None and not config.resume:
        check_folder(out, _TRACES, resume="--resume")
    elif out is not None and not (out / INCARNATION_FILE).exists():
        raise ConfigError(f"{out} holds no run: there is nothing to resume")
    training = _Training(config, _placed(config, take_place(peer_config)))
    telemetry = training.peer._telemetry
    training.peer._stop = stop = stop or training.peer._stop
    try:
        training.run(stop)
    except ConfigError:
        raise
    except (RumorError, OSError) as error:
        was_told = stop.is_set() and isinstance(error, TransportError)
        if telemetry.report is None:
            stats, failure = training.peer.stats(), None if was_told else error
            telemetry.tell_end(stats, "left" if was_told else "failed", error=failure)
        if not was_told:
            raise
        _log.info("%s", error)
    if telemetry.failure is not None:
        raise TrainingError(
            f"training is over, and its end cannot be written to {out} "
            f"({telemetry.failure.strerror or telemetry.failure}): make room, and resume it from "
            "its last checkpoint"
        ) from telemetry.failure
    assert telemetry.report is not None
    return telemetry.report


class _Training:
    """One run of one peer, from the start or from a checkpoint."""

    def __init__(self, config: RunConfig, peer_config: PeerConfig) -> None:
        self._config = config
        self.learner = Learner(config, peer_config.named())
        require_optimizer(peer_config.make_rule(), self.learner.task, self.learner.model)
        every = config.eval_average_every
        self.peer = Peer(
            self.learner.model,
            peer_config,
            evaluate=None if every is None else self._evaluate,
            evaluate_every=every,
            checkpoints=False,
        )
        # Settings that a replay needs, as JSON values.
        settings = asdict(config) | {"options": None, "device": str(self.learner.device)}
        settings["lr_schedule"] = self.learner.lr_schedule
        telemetry = self.peer._telemetry
        telemetry.settings, telemetry.index = settings, config.index
        telemetry.after_exchange = self._after_exchange
        telemetry.evaluate_end = lambda: self.learner.task.evaluate(self.learner.model)
        if config.journal:
            self.peer._journaled = settings
        if config.options is not None:
            self.peer._notes = {OPTIONS: config.options}
        self._resumed = False
        if peer_config.checkpoint is not None:
            self.peer.register(training=self)
            self._resumed = config.resume and self.peer.resume()
        requirements = requirements_of(self.peer._rule)
        self._by_samples = requirements.by_samples
        self._waits = requirements.waits
        if requirements.overlaps:
            self.learner.overlap(self.peer._vector.schema, self.peer._trained_shard)
        self._began_s = 0.0

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, next to the model."""
        return self.learner.state_dict() | {"time_s": self.peer._telemetry.elapsed_s}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's state."""
        self.learner.load_state_dict(state)
        self.peer._telemetry.before_s = float(state["time_s"])

    def run(self, stop: threading.Event) -> None:
        """Train to the end, or until *stop* is set."""
        learner, peer = self.learner, self.peer
        with peer:
            if not self._resumed:
                learner.start()
            try:
                while not (stop.is_set() or learner.is_done(peer.swarm_steps) or peer.ended_by):
                    self._step()
            finally:
                learner.close()
            if peer.ended_by == STOPPED and self._waits:
                # Peers that wait for one another in each step cannot all end after the same step.
                stop.set()
            if stop.is_set():
                _log.info("leaving after %d steps", learner.taken)
                peer.leave()
                return
            by = f", as {peer.ended_by} has ended training" if peer.ended_by else ""
            _log.info("finished %d steps%s, merging with the others", learner.taken, by)

    def _step(self) -> None:
        self._began_s = time.perf_counter()
        learner, peer, journal = self.learner, self.peer, self.peer._running().journal
        if journal is not None:
            journal.began(learner.loader.sampler.batch(learner.taken))
        loss = learner.step(swarm_steps=peer.swarm_steps)
        if journal is not None:
            journal.trained(float(loss))
        # Check before the step is over, so that no checkpoint includes its result.
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss of step {learner.taken} is {float(loss)}: lower the learning rate"
            )
        peer.step(loss=loss, samples=learner.samples if self._by_samples else None, lr=learner.lr)

    def _after_exchange(self, apart_s: float) -> bool:
        evaluation = self.learner.evaluation()
        if evaluation is not None:
            self.peer.log(accuracy=evaluation.accuracy, loss=evaluation.loss)
        rest_s = self._config.step_s_min + apart_s - (time.perf_counter() - self._began_s)
        if rest_s > 0:
            time.sleep(rest_s)
        return evaluation is not None

    def _evaluate(self, model: nn.Module) -> dict[str, float]:
        measured = asdict(self.learner.task.evaluate(model))
        return {name: value for name, value in measured.items() if value is not None}


def _placed(config: RunConfig, peer_config: PeerConfig) -> PeerConfig:
    """Return the peer's configuration with its name and checkpoints."""
    out = peer_config.out
    if out is None:
        return replace(peer_config, id=peer_config.named())
    last = last_incarnation(out) if config.resume else None
    id = peer_config.id or (last.id if last else peer_config.named())
    checkpoint = peer_config.checkpoint
    if checkpoint is None and (config.resume or config.checkpoint_every != "never"):
        checkpoint = CheckpointConfig(folder=out / CHECKPOINTS, every=config.checkpoint_every)
    return replace(peer_config, id=id, checkpoint=checkpoint)
