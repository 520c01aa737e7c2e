"""Trains a task as one peer of a swarm, and leaves a folder that tells all about it."""

import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from ...gossip import ConfigError, RumorError, TrainingError, TransportError
from ...gossip.protocol.leave import STOPPED
from ...gossip.protocol.rule import requirements_of
from ..config import (
    CHECKPOINTS,
    CheckpointConfig,
    PeerConfig,
    Recurrence,
    RunConfig,
    parse_interval,
)
from ..loggers.registry import make_loggers
from ..loggers.writer import LogWriter
from ..peer import Peer
from ..runtime.telling.stats import AverageEvaluation
from ..storage.incarnation import INCARNATION_FILE, last_id
from ..tasks.task import require_optimizer
from .learner import Learner
from .metrics import Recorder
from .report import Report, State, logged_run, report_of

__all__ = ["OPTIONS", "RunConfig", "run"]


_log = logging.getLogger("rumor")


OPTIONS: Final = "options.json"
"""What the command line said, in a peer's folder, for whoever resumes."""


def run(
    config: RunConfig,
    peer_config: PeerConfig,
    *,
    stop: threading.Event | None = None,
) -> Report:
    """Train as one peer until its steps are done or *stop* is set.

    Args:
        config: What to train.
        peer_config: How to take part.
        stop: When set, the peer leaves: it hands its weight on and ends.

    Returns:
        How it ended; also in ``peer.json``, where there is a folder.

    Raises:
        ConfigError: A setting is out of range, the folder holds another run, or what is to be
            resumed was trained otherwise, or still runs; nothing was written.
        RumorError: The run failed; ``peer.json`` says so, too, where it can be written.
        OSError: Likewise.
    """
    out = peer_config.out
    if out is not None:
        (_require_run if config.resume else _require_empty)(out)
    elif config.resume:
        raise ConfigError("to resume takes a folder: say with out from which")
    elif config.journal:
        raise ConfigError("a journal needs a folder: say where with out")
    loggers = LogWriter(make_loggers(peer_config.loggers))
    training = _Training(config, _placed(config, peer_config), loggers, peer_config.log_every)
    training.peer._stop = stop = stop or training.peer._stop
    try:
        state = training.run(stop)
        return training.report(state)
    except ConfigError:
        raise
    except (RumorError, OSError) as error:
        if not (stop.is_set() and isinstance(error, TransportError)):
            training.report_failure(str(error))
            raise
        _log.info("%s", error)
        return training.report("left")
    finally:
        loggers.close({})


class _Training:
    """One run of one peer, or what a checkpoint lets it go on with."""

    def __init__(
        self,
        config: RunConfig,
        peer_config: PeerConfig,
        loggers: LogWriter,
        log_every: int | None,
    ) -> None:
        self._config = config
        self._out = peer_config.out
        self._log_every = log_every
        self._loggers = loggers
        self.learner = Learner(config, peer_config.named())
        require_optimizer(peer_config.make_rule(), self.learner.task, self.learner.model)
        every = config.eval_average_every
        self.peer = Peer(
            self.learner.model,
            peer_config,
            evaluate=None if every is None else self._evaluate,
            evaluate_every=every,
        )
        if config.journal:
            self.peer._journaled = _settings(config, self.learner)
        if config.options is not None:
            self.peer._notes = {OPTIONS: config.options}
        self._before_s = 0.0
        self._recorder: Recorder | None = None
        self._resumed = False
        if peer_config.checkpoint is not None:
            self.peer.register(training=self)
            self._resumed = config.resume and self.peer.resume()
        self._steps_before = self.learner.taken
        self._wall_s = 0.0
        requirements = requirements_of(self.peer._rule)
        self._by_samples = requirements.by_samples
        self._waits = requirements.waits
        if requirements.overlaps:
            self.learner.overlap(self.peer._vector.schema, self.peer._trained_shard)
        self._exchange_s = 0.0
        self._has_averaged = False
        self._averaged: AverageEvaluation | None = None
        self._checkpoint = Recurrence(parse_interval(config.checkpoint_every), self.learner.taken)

    @property
    def _model(self) -> nn.Module:
        return self.learner.model

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the model."""
        recorder = self._recorder
        time_s = self._before_s if recorder is None else recorder.elapsed_s
        return self.learner.state_dict() | {"time_s": time_s}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from it."""
        self.learner.load_state_dict(state)
        self._before_s = float(state["time_s"])

    def run(self, stop: threading.Event) -> State:
        """Train to the end, or until *stop* is set."""
        config, learner, peer = self._config, self.learner, self.peer
        with peer:
            if not self._resumed:
                learner.start()
            if self._out is not None and config.resume:
                # What it says of an earlier incarnation would pass for the end of this one.
                (self._out / "peer.json").unlink(missing_ok=True)
            path = None if self._out is None else self._out / "metrics.jsonl"
            self._loggers.open(logged_run(peer.stats(), peer.config, _settings(config, learner)))
            self._recorder = Recorder(
                path if self._log_every else None,
                peer.stats,
                peer._vector.flats,
                self._log_every or 1,
                before_s=self._before_s,
                loggers=self._loggers,
            )
            started_s = time.perf_counter()
            try:
                while not (stop.is_set() or learner.is_done(peer.swarm_steps) or peer.ended_by):
                    self._step(self._recorder)
            finally:
                self._wall_s = time.perf_counter() - started_s
                learner.close()
                self._recorder.close()
            if peer.ended_by == STOPPED and self._waits:
                # Those who wait for one another in each step cannot all end after the same one.
                stop.set()
            if stop.is_set():
                _log.info("leaving after %d steps", learner.taken)
                peer.leave()
                return "left"
            by = f", as {peer.ended_by} has ended training" if peer.ended_by else ""
            _log.info("finished %d steps%s, merging with the others", learner.taken, by)
        # Told to stop while it waited for them, it has handed its weight on.
        return "left" if stop.is_set() and peer.stats().has_left else "finished"

    def _step(self, recorder: Recorder) -> None:
        began_s, learner = time.perf_counter(), self.learner
        loss = float(self._train())
        evaluation = learner.evaluation()
        if evaluation is not None:
            self.peer.log(accuracy=evaluation.accuracy, loss=evaluation.loss)
        if self._averaged is not None:
            began_s += self._averaged.wall_s  # that belongs to no step
        rest_s = self._config.step_s_min - (time.perf_counter() - began_s)
        if rest_s > 0:
            time.sleep(rest_s)
        step_s = time.perf_counter() - began_s
        recorder.note(loss, step_s, self._exchange_s)
        if evaluation is not None or self._averaged is not None or recorder.is_due(learner.taken):
            recorder.write(
                learner.taken,
                lr=learner.lr,
                evaluation=evaluation,
                averaged=self._averaged,
                sketched=evaluation is not None,
            )
        if not math.isfinite(loss):
            told = f"the loss of step {learner.taken} is {loss}: lower the learning rate"
            raise TrainingError(told)
        # All that belongs to this step is done, so the next incarnation begins with the next step.
        if self._checkpoint.is_due(learner.taken) and self.peer.config.checkpoint is not None:
            self._save_checkpoint()

    def _evaluate(self, model: nn.Module) -> dict[str, float]:
        self._has_averaged = True
        measured = asdict(self.learner.task.evaluate(model))
        return {name: value for name, value in measured.items() if value is not None}

    def _save_checkpoint(self) -> None:
        try:
            written = self.peer.save_checkpoint()
        except ConfigError as error:
            # A task of somebody's own, whose optimizer has a state that cannot be kept: nobody
            # asked for checkpoints, and training does not need them.
            _log.warning("no checkpoint was written: %s", error)
            written = True
        if written:
            self._checkpoint.done(self.learner.taken)

    def _train(self) -> Tensor:
        journal, swarm_steps = self.peer._journal, self.peer.swarm_steps
        if journal is None:
            loss = self.learner.step(swarm_steps=swarm_steps)
            self._exchange(loss)
            return loss
        journal.began(self.learner.batch())
        loss = self.learner.step(swarm_steps=swarm_steps)
        journal.trained(float(loss))
        self._exchange(loss)
        journal.check()
        return loss

    def _exchange(self, loss: Tensor) -> None:
        began_s, self._has_averaged = time.perf_counter(), False
        samples = self.learner.samples if self._by_samples else None
        self.peer.step(loss=loss, samples=samples, lr=self.learner.lr)
        self._averaged = self.peer.stats().averaged if self._has_averaged else None
        apart_s = self._averaged.wall_s if self._averaged else 0.0
        self._exchange_s = time.perf_counter() - began_s - apart_s

    def report(self, state: State) -> Report:
        """Say how it ended, and keep the model.

        Raises:
            TrainingError: The folder cannot be written.
        """
        report = self._report(state)
        if self._out is not None:
            try:
                self.peer.save_model(self._out / "model.safetensors")
                report.write(self._out)
            except OSError as error:
                raise TrainingError(
                    f"training is over, and its end cannot be written to {self._out} "
                    f"({error.strerror or error}): make room, and resume it from its last "
                    "checkpoint"
                ) from error
        self._loggers.close(report.as_json())
        return report

    def report_failure(self, error: str) -> None:
        """Say what went wrong, if the disk takes it: whatever that is must not be hidden."""
        if self._out is not None:
            try:
                self._report("failed", error).write(self._out)
            except OSError as failure:
                _log.warning("nor could peer.json be written: %s", failure)
        self._loggers.close({"state": "failed", "error": error})

    def _report(self, state: State, error: str | None = None) -> Report:
        return report_of(
            self.peer.stats(),
            state,
            error,
            merge=self.peer.merged,
            folder=self._out,
            steps_before=self._steps_before,
            wall_s=self._wall_s,
            evaluation=self.learner.task.evaluate(self._model) if state != "failed" else None,
            index=self._config.index,
        )


_TRACES: Final = ("ledger.jsonl", "peer.json", INCARNATION_FILE)


def _require_empty(folder: Path) -> None:
    if any((folder / name).exists() for name in _TRACES):
        raise ConfigError(
            f"{folder} holds another run: name a new folder, or continue that run with --resume"
        )


def _require_run(folder: Path) -> None:
    if not (folder / INCARNATION_FILE).exists():
        raise ConfigError(f"{folder} holds no run: there is nothing to resume")


def _placed(config: RunConfig, peer_config: PeerConfig) -> PeerConfig:
    """What the peer is told: its name, and where it writes."""
    out = peer_config.out
    if out is None:
        return replace(peer_config, id=peer_config.named(), log_every=None, loggers=())
    id = peer_config.id or (last_id(out) if config.resume else None) or peer_config.named()
    checkpoint = peer_config.checkpoint
    if checkpoint is None and (config.resume or config.checkpoint_every != "never"):
        # When one is due, is for the run to say: it knows when all of a step is done.
        checkpoint = CheckpointConfig(folder=out / CHECKPOINTS, every_s=None)
    # The rows are those of this run, which knows its learning rate and evaluates.
    return replace(peer_config, id=id, checkpoint=checkpoint, log_every=None, loggers=())


def _settings(config: RunConfig, learner: Learner) -> dict[str, Any]:
    """What a replay needs to train the same: the fields of *config*, as values that JSON has."""
    found = asdict(config) | {"options": None} | {"device": str(learner.device)}
    found["lr_schedule"] = learner.lr_schedule
    return found
