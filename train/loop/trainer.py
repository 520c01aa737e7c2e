"""Trains a task as one peer of a swarm, and leaves a folder that tells all about it."""

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...gossip import ConfigError, RumorError, TrainingError, TransportError
from ...gossip.protocol.leave import STOPPED
from ...gossip.protocol.rule import requirements_of
from ...gossip.transport.zmq_transport import Transport
from ...gossip.wire.schema import Schema
from ..config import CHECKPOINTS, CheckpointConfig, PeerConfig, RunConfig
from ..loggers.registry import make_loggers
from ..loggers.writer import LogWriter
from ..peer import Peer
from ..runtime.session import open_transport
from ..storage.incarnation import INCARNATION_FILE, last_id
from ..tasks.data import Loader, judge_of, make_loader
from ..tasks.live_partition import LiveSampler, live_passes
from ..tasks.partition import partition_as_json, partition_name
from ..tasks.precision import descend, make_scaler
from ..tasks.random_state import seed_of
from ..tasks.registry import BUILT_IN, load_task
from ..tasks.sources import batch_length
from ..tasks.task import Evaluation, Task, require_optimizer
from ..tensors.cuda import find_device
from ..timing.interval import Recurrence, parse_interval
from ..timing.lr_schedule import parse_lr_schedule
from .average import AverageEvaluation
from .backward import BackwardSteps
from .metrics import Recorder, Report, State
from .record import logged_run, report_of, save_peer_model

__all__ = ["OPTIONS", "Learner", "RunConfig", "run"]


# On a CPU the thread that prepares batches takes its time from the training.
_PREFETCH: Final = {"cuda": 2}

# With another of these, the data would not go on where they stood, or would be others.
_MADE_FROM: Final = ("task", "seed", "index", "count")


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
        task = load_task(config.task, seed=config.seed)
        task = task.with_optimizer(config.optimizer).with_momentum(config.momentum)
        self.task: Task = task.with_precision(config.precision)
        self.steps: int | None = config.steps
        """How many there are to be; None where the swarm's clock alone says when to stop."""
        if config.steps is None and config.total_steps is None:
            self.steps = self.task.steps
        self.taken = 0
        """How many were taken, those of earlier incarnations included."""
        self.samples = 0
        """How many samples the last of them took."""
        self.lr_schedule = config.lr_schedule or self.task.lr_schedule
        """As people type it."""
        self._schedule = parse_lr_schedule(self.lr_schedule)
        self.device = find_device(config.device)
        torch.manual_seed(config.seed)
        self.model: nn.Module = self.task.model().to(self.device)
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        self._optimizer = self.task.optimizer(trainable, config.lr or self.task.lr)
        self._full_lrs = [float(group["lr"]) for group in self._optimizer.param_groups]
        self._scaler = make_scaler(self.task.precision, self.device)
        self._backward: BackwardSteps | None = None
        passes = live_passes(config.partition)
        samples = self.task.split(config.partition, config.count, config.seed)[config.index]
        batch_size = config.batch_size or self.task.batch_size
        self._made_from = {name: getattr(config, name) for name in _MADE_FROM} | {
            "partition": partition_name(config.partition),
            "batch_size": batch_size,
            "samples": None if samples is None else len(samples),
        }
        prefetch = config.prefetch
        if prefetch is None:
            prefetch = _PREFETCH.get(self.device.type, 0)
        self._make_loader = partial(
            make_loader,
            self.task,
            samples,
            batch_size=batch_size,
            seed=config.seed,
            index=config.index,
            count=config.count,
            device=self.device,
        )
        self._loader = self._make_loader(peer=peer, prefetch=prefetch, passes=passes)
        self._judge: Loader | None = None

    @property
    def live(self) -> LiveSampler | None:
        """Deals samples by who is there, where the partition is such a one."""
        return self._loader.live

    def overlap(self, schema: Schema, ready: Callable[[int], object]) -> None:
        """Take optimizer steps within the backward pass, shard by shard, from now on.

        Args:
            schema: How the model is cut.
            ready: Told each shard whose numbers are those after the step.

        Raises:
            ConfigError: The task's precision is ``float16``, whose steps are left out as a whole.
        """
        if self._scaler is not None:
            raise ConfigError(
                f"precision is {self.task.precision!r}: a step is left out where any gradient is "
                "not finite, which is known after the backward pass; use bfloat16 or float32, or "
                "a rule that pushes after the step"
            )
        self._backward = BackwardSteps(self.model, self._optimizer, schema, ready)

    def start(self) -> None:
        """Make what is random in a step, such as dropout, differ from peer to peer."""
        torch.manual_seed(seed_of(self._config.seed, self._peer, "torch"))

    def batch(self) -> NDArray[np.int64]:
        """The samples of the next step: int64, axes ``(batch_size,)``, see `Loader.samples`."""
        return self._loader.samples(self.taken)

    def loss_on(self, number: int) -> float:
        """The loss of the model as it is on a batch of this peer's samples, which *number* names.

        The samples come in another order than those of the steps: on the batch of the last step
        this peer's model would do better than any other that is as good.
        """
        if self._judge is None:
            self._judge = self._make_loader(peer=judge_of(self._peer))
        return self.task.loss_of(self.model, self._judge.take(number))

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
        taken = self._loader.take(self.taken, batch)
        self._optimizer.zero_grad()
        loss = self.task.batch_loss(self.model, taken)
        if self._backward is None:
            descend(loss, self._optimizer, self._scaler)
        else:
            loss.backward()
            self._backward.finish()
        self.taken += 1
        self.samples = batch_length(taken)
        return loss.detach()

    def evaluation(self) -> Evaluation | None:
        """The model on held-out data, where it is to be measured after this step."""
        due = self.taken % self._config.eval_every == 0 or self.taken == self.steps
        return self.task.evaluate(self.model) if due else None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the model: optimizer, place in the data, origin."""
        state = {
            "made_from": self._made_from,
            "taken": self.taken,
            "optimizer": self._optimizer.state_dict(),
        }
        return state if self._scaler is None else state | {"scaler": self._scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another incarnation of the same peer stood.

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
        if self._scaler is not None and "scaler" in state:
            self._scaler.load_state_dict(dict(state["scaler"]))
        self.taken = int(state["taken"])
        if self._config.lr is not None:
            for group, full in zip(self._optimizer.param_groups, self._full_lrs, strict=True):
                group["lr"] = full

    def close(self) -> None:
        """Prepare no more batches; what was learnt stays."""
        self._loader.close()
        if self._backward is not None:
            self._backward.close()
            self._backward = None

    def _set_lr(self, swarm_steps: int) -> None:
        if self._schedule.is_constant:
            return
        total = self._config.total_steps
        done, whole = (self.taken, self.steps) if total is None else (swarm_steps, total)
        factor = self._schedule.factor(done / (whole or math.inf))
        for group, full in zip(self._optimizer.param_groups, self._full_lrs, strict=True):
            group["lr"] = full * factor

    def _seed_step(self) -> None:
        seed = seed_of(self._config.seed, self._peer, f"step:{self.taken}")
        # Not torch.manual_seed, which takes longer than many a step: it asks after all devices.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        if self._is_users_own:
            # Built-in tasks draw from torch alone.
            random.seed(seed)
            np.random.seed(seed & 0xFFFFFFFF)


_log = logging.getLogger("rumor")


OPTIONS: Final = "options.json"
"""What the command line said, in a peer's folder, for whoever resumes."""


def run(
    config: RunConfig,
    peer_config: PeerConfig,
    *,
    stop: threading.Event | None = None,
    opens: Callable[[PeerConfig], Transport] = open_transport,
) -> Report:
    """Train as one peer until its steps are done or *stop* is set.

    Args:
        config: What to train.
        peer_config: How to take part.
        stop: When set, the peer leaves: it hands its weight on and ends.
        opens: Opens its sockets.

    Returns:
        How it ended; also in ``peer.json``, where there is a folder.

    Raises:
        ConfigError: A setting is out of range, the folder holds another run, or what is to be
            resumed was trained otherwise, or still runs; nothing was written.
        RumorError: The run failed; ``peer.json`` says so, too, where it can be written.
        OSError: Likewise.
    """
    out = config.out
    if out is not None:
        (_require_run if config.resume else _require_empty)(out)
    elif config.journal and peer_config.out is None:
        raise ConfigError("a journal needs a folder: say where with out")
    loggers = LogWriter(make_loggers(peer_config.loggers))
    training = _Training(config, _placed(config, peer_config), loggers)
    training.peer.stop = stop = stop or training.peer.stop
    training.peer.opens = opens
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

    def __init__(self, config: RunConfig, peer_config: PeerConfig, loggers: LogWriter) -> None:
        self._config = config
        self._loggers = loggers
        self.learner = Learner(config, peer_config.named())
        require_optimizer(peer_config.make_rule(), self.learner.task, self.learner.model)
        every = config.eval_average_every
        self.peer = Peer(
            self.learner.model,
            peer_config,
            evaluate=None if every is None else self._evaluate,
            evaluate_every=every,
            loss=self.learner.loss_on,
        )
        if config.journal:
            self.peer.journaled = _settings(config, self.learner)
        if config.options is not None:
            self.peer.notes = {OPTIONS: config.options}
        self._before_s = 0.0
        self._recorder: Recorder | None = None
        self._resumed = False
        if peer_config.checkpoint is not None:
            self.peer.register(training=self)
            self._resumed = config.resume and self.peer.resume()
        self._steps_before = self.learner.taken
        self._wall_s = 0.0
        requirements = requirements_of(self.peer.rule)
        self._by_samples = requirements.by_samples
        self._waits = requirements.waits
        if requirements.overlaps:
            self.learner.overlap(self.peer.vector.schema, self.peer.trained_shard)
        self._exchange_s = 0.0
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
            if config.out is not None and config.resume:
                # What it says of an earlier incarnation would pass for the end of this one.
                (config.out / "peer.json").unlink(missing_ok=True)
            path = config.out / "metrics.jsonl" if config.out is not None else None
            self._loggers.open(logged_run(peer, _settings(config, learner)))
            self._recorder = Recorder(
                *(path, peer, config.log_every), before_s=self._before_s, loggers=self._loggers
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
        return "left" if stop.is_set() and peer.has_left else "finished"

    def _step(self, recorder: Recorder) -> None:
        began_s, learner = time.perf_counter(), self.learner
        loss = self._train()
        evaluation = learner.evaluation()
        if evaluation is not None:
            self.peer.evaluated(accuracy=evaluation.accuracy, loss=evaluation.loss)
        if self._averaged is not None:
            began_s += self._averaged.wall_s  # that belongs to no step
        rest_s = self._config.step_s_min - (time.perf_counter() - began_s)
        if rest_s > 0:
            time.sleep(rest_s)
        step_s = time.perf_counter() - began_s
        recorder.step(
            learner.taken,
            float(loss),
            step_s,
            learner.lr,
            evaluation,
            exchange_s=self._exchange_s,
            averaged=self._averaged,
            seen=None if learner.live is None else learner.live.seen,
        )
        # All that belongs to this step is done, so the next incarnation begins with the next step.
        if self._checkpoint.is_due(learner.taken) and self.peer.config.checkpoint is not None:
            self._save_checkpoint()

    def _evaluate(self, model: nn.Module) -> dict[str, float]:
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
        journal, swarm_steps = self.peer.journal, self.peer.swarm_steps
        live = self.learner.live
        if live is not None and live.is_due(swarm_steps):
            dealt = live.look(swarm_steps, self.peer.training, self.learner.taken)
            if journal is not None:
                journal.dealt(dealt.epoch, dealt.members)
        if journal is None:
            loss = self.learner.step(swarm_steps=swarm_steps)
            self._exchange(loss)
            return loss
        batch = self.learner.batch()
        journal.began(batch)
        loss = self.learner.step(batch, swarm_steps=swarm_steps)
        journal.trained(float(loss))
        self._exchange(loss)
        journal.check()
        return loss

    def _exchange(self, loss: Tensor) -> None:
        began_s, before = time.perf_counter(), self.peer.averaged
        samples = self.learner.samples if self._by_samples else None
        self.peer.step(loss=loss, samples=samples, lr=self.learner.lr)
        self._averaged = self.peer.averaged if self.peer.averaged is not before else None
        apart_s = self._averaged.wall_s if self._averaged else 0.0
        self._exchange_s = time.perf_counter() - began_s - apart_s

    def report(self, state: State) -> Report:
        """Say how it ended, and keep the model.

        Raises:
            TrainingError: The folder cannot be written.
        """
        report = self._report(state)
        if self._config.out is not None:
            try:
                save_peer_model(self.peer, self._model, self._config.out / "model.safetensors")
                report.write(self._config.out)
            except OSError as error:
                raise TrainingError(
                    f"training is over, and its end cannot be written to {self._config.out} "
                    f"({error.strerror or error}): make room, and resume it from its last "
                    "checkpoint"
                ) from error
        self._loggers.close(report.as_json())
        return report

    def report_failure(self, error: str) -> None:
        """Say what went wrong, if the disk takes it: whatever that is must not be hidden."""
        if self._config.out is not None:
            try:
                self._report("failed", error).write(self._config.out)
            except OSError as failure:
                _log.warning("nor could peer.json be written: %s", failure)
        self._loggers.close({"state": "failed", "error": error})

    def _report(self, state: State, error: str | None = None) -> Report:
        return report_of(
            self.peer,
            state,
            error,
            folder=self._config.out,
            steps_before=self._steps_before,
            wall_s=self._wall_s,
            evaluation=self.learner.task.evaluate(self._model) if state != "failed" else None,
            index=self._config.index,
        )


_TRACES: Final = ("ledger.jsonl", "peer.json", INCARNATION_FILE)


def _require_empty(folder: Path) -> None:
    if any((folder / name).exists() for name in _TRACES):
        raise ConfigError(f"{folder} holds another run: name a new folder, or resume that one")


def _require_run(folder: Path) -> None:
    if not (folder / INCARNATION_FILE).exists():
        raise ConfigError(f"{folder} holds no run: there is nothing to resume")


def _placed(config: RunConfig, peer_config: PeerConfig) -> PeerConfig:
    """What the peer is told: its name, and where it writes."""
    out = config.out
    if out is None:
        return replace(peer_config, id=peer_config.named(), log_every=None, loggers=())
    id = peer_config.id or (last_id(out) if config.resume else None) or peer_config.named()
    checkpoint = peer_config.checkpoint
    if checkpoint is None and (config.resume or config.checkpoint_every != "never"):
        # When one is due, is for the run to say: it knows when all of a step is done.
        checkpoint = CheckpointConfig(folder=out / CHECKPOINTS, every_s=None)
    # The rows are those of this run, which knows its learning rate and evaluates.
    return replace(peer_config, id=id, out=out, checkpoint=checkpoint, log_every=None, loggers=())


def _settings(config: RunConfig, learner: Learner) -> dict[str, Any]:
    """What a replay needs to train the same: the fields of *config*, as values that JSON has."""
    # A replay prepares each batch when it is due: the same ones, without a thread for each peer.
    without = {"out": None, "prefetch": 0, "options": None}
    found = asdict(config) | without | {"device": str(learner.device)}
    found["lr_schedule"] = learner.lr_schedule
    return found | {"partition": partition_as_json(config.partition)}
