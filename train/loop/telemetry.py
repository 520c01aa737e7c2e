"""What is told of a peer while its loop runs: rows of metrics, the average of all, Prometheus."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import Tensor, nn

from ...gossip import ConfigError, RumorError, TransportError
from ..config import PeerConfig
from ..loggers.logger import LoggedRun
from ..loggers.registry import make_loggers
from ..loggers.writer import LogWriter
from ..runtime.shutdown import MergeResult
from ..runtime.telling.stats import METRICS, AverageEvaluation, PeerStats
from ..storage.jsonl import JsonlLog
from ..storage.ledger_file import ledger_paths
from ..tasks.task import Evaluation
from ..tensors.vector import Vector
from .average import Average, AverageEvaluator, Evaluate, evaluation_of
from .exporter import Exporter
from .report import Report, State, save_peer_model
from .sketch import sketch

__all__ = ["Loss", "Telemetry"]

Loss = float | Tensor
"""Of a batch: a number, or a tensor with one."""

_log = logging.getLogger("rumor")

# Among the rows that are due; the launcher estimates the consensus distance from sketches.
_ROWS_PER_SKETCH: Final = 5

# Part of the time that sketches of a large model may take.
_SKETCHING_PART_MAX: Final = 0.02


class Telemetry:
    """Tells how a peer's training goes: rows while its loop runs, and its end.

    What the disk does not take costs a warning, and training goes on. *ready* is a file that is
    there as long as the peer is a member.

    Raises:
        ConfigError: A logger cannot be made, or only one of *evaluate* and *evaluate_every* is
            given.
    """

    def __init__(
        self,
        config: PeerConfig,
        model: nn.Module,
        vector: Vector,
        evaluate: Evaluate | None,
        evaluate_every: int | None,
        ready: Path | None = None,
    ) -> None:
        if (evaluate is None) is not (evaluate_every is None):
            raise ConfigError("evaluate and evaluate_every go together: give both, or neither")
        self._config, self._model, self._vector, self._ready = config, model, vector, ready
        self.averaged: AverageEvaluation | None = None
        """What the peer has measured last of the average of all."""
        self._evaluator: AverageEvaluator | None = None
        if evaluate is not None and evaluate_every is not None:
            self._evaluator = AverageEvaluator(model, evaluate, evaluate_every)
        # From here to `report`: `rumor peer` sets these before the start, a script does not.
        self.settings: Mapping[str, Any] | None = None
        """What is trained, for loggers; given, the end is written whether or not rows are."""
        self.index = 0
        """Which part of the data is trained on."""
        self.before_s = 0.0
        """How long earlier incarnations trained, seconds."""
        self.after_exchange: Callable[[float], bool] | None = None
        """Called in each step, before its row, with seconds that belong to no step; returns whether
        the step has a row, and a sketch, in any case."""
        self.evaluate_end: Callable[[], Evaluation] | None = None
        """Measures the model at its end."""
        self.report: Report | None = None
        """How the peer ended; None before."""
        self.failure: OSError | None = None
        """Why its end could not be written."""
        self._loggers = LogWriter(make_loggers(config.loggers))
        self._exporter: Exporter | None = None
        self._loss: Loss | None = None
        self._measured: dict[str, float] = {}
        self._rows: JsonlLog | None = None
        self._losses: Loss = 0.0
        self._losses_count = self._mixed = self._staleness_steps = 0
        self._step_s: list[float] = []
        self._own_s: list[float] = []
        self._evaluation: Evaluation | None = None
        self._is_noted = True
        self._steps_before = 0
        self._started_s = self._stepped_s = 0.0
        self._sketch_due_s = -math.inf

    def serve(self, stats: Callable[[], PeerStats]) -> None:
        """Serve metrics from now on, where that is asked for.

        Raises:
            ConfigError: The port is in use, or cannot be had.
        """
        # A process that was killed has left it.
        self._unready()
        if self._config.metrics_port is None:
            return
        self._exporter = Exporter(stats, self._config.metrics_port, self._config.metrics_host)
        # A script need not show information, and else nobody would know a free port.
        level = logging.INFO if self._config.metrics_port else logging.WARNING
        _log.log(level, "metrics at %s", self._exporter.url)

    @property
    def metrics_url(self) -> str | None:
        """Where metrics are served; None where they are not, or not now."""
        return None if self._exporter is None else self._exporter.url

    def begin(self, stats: Callable[[], PeerStats]) -> None:
        """Write rows from now on, where that is asked for: the peer has been let in.

        Raises:
            ConfigError: The file that says so cannot be written.
        """
        first = stats()
        self._say_ready(first.id)
        self._steps_before = first.steps
        self._started_s = self._stepped_s = time.perf_counter()
        out, log_every = self._config.out, self._config.log_every
        if out is not None and self._writes_end:
            # What it says of an earlier incarnation would pass for the end of this one.
            (out / "peer.json").unlink(missing_ok=True)
        if log_every is None or (out is None and not self._loggers):
            return
        self._rows = JsonlLog(None if out is None else out / "metrics.jsonl")
        own = {"rule": first.rule, "p": first.p, "topology": first.topology}
        own |= {"seed": self._config.seed, "shards": self._config.shards}
        own |= {"wire": self._config.protocol.wire, **(self.settings or {})}
        name = f"swarm-{first.swarm[:8]}"
        self._loggers.open(LoggedRun(name=name, peer=first.id, folder=out, config=own))

    @property
    def _writes_end(self) -> bool:
        return self._config.log_every is not None or self.settings is not None

    @property
    def elapsed_s(self) -> float:
        """How long the peer has trained, earlier incarnations included, seconds."""
        return self.before_s + (time.perf_counter() - self._started_s if self._started_s else 0.0)

    def stepped(
        self,
        step: int,
        loss: Loss | None,
        exchange_s: float,
        *,
        lr: float | None,
        stats: Callable[[], PeerStats],
        average: Callable[[float], Average],
    ) -> float:
        """Note a step, *exchange_s* of which went to pushing, mixing and waiting for others.

        A loss that is a tensor is read where it is asked for or a row is written, so that a GPU is
        not waited for in each step.

        Returns:
            How long it took to measure the average of all, which belongs to no step, seconds.
        """
        if loss is not None:
            loss = self._loss = loss.detach() if isinstance(loss, Tensor) else loss
        averaged, evaluator = None, self._evaluator
        if evaluator is not None and evaluator.is_due(step, stats):
            averaged = self.averaged = evaluator.measure(step, average)
        apart_s = averaged.wall_s if averaged else 0.0
        is_due = self.after_exchange is not None and self.after_exchange(apart_s)
        if self._rows is not None and self._config.log_every is not None:
            if loss is not None:
                self._losses, self._losses_count = self._losses + loss, self._losses_count + 1
            step_s = time.perf_counter() - self._stepped_s - apart_s
            self._step_s.append(step_s)
            self._own_s.append(step_s - exchange_s)
            if averaged or is_due or step % self._config.log_every == 0 or step == 1:
                self._write(self._rows, step, stats(), averaged, lr=lr, sketched=is_due)
        # What the row itself took belongs to no step.
        self._stepped_s = time.perf_counter()
        return apart_s

    def evaluated(self, accuracy: float | None, loss: float | None) -> None:
        """Note what was measured on held-out data; it goes into the next row."""
        told = {"accuracy": accuracy, "test_loss": loss}
        self._measured = {name: float(value) for name, value in told.items() if value is not None}
        self._evaluation = evaluation_of(accuracy=accuracy, loss=loss)
        self._is_noted = False

    def measured(self) -> dict[str, float]:
        """What was noted last: ``loss``, ``accuracy``, ``test_loss``; on any thread."""
        loss = self._loss
        try:
            return self._measured if loss is None else {"loss": float(loss), **self._measured}
        except (RuntimeError, TypeError, ValueError):
            # A loop may hand over what is no number. Whoever writes it down says so; threads that
            # serve others must not end of it.
            return self._measured

    def end(
        self,
        stats: Callable[[], PeerStats],
        error: BaseException | None,
        merge: MergeResult | None,
        *,
        caught: bool,
        left: bool,
        early: bool,
    ) -> None:
        """Say how the loop ended, and write it where that is asked for.

        Args:
            stats: Reads the peer's figures.
            error: What ended the loop; None where it came to its end.
            merge: How the peer has merged; None where it has not.
            caught: Whether a signal had come.
            left: Whether the peer has left.
            early: Whether that was before the end of the loop, or it was told to stop.
        """
        # They keep the peer, and the peer keeps this.
        rows, self._rows = self._rows, None
        if rows is not None:
            if not self._is_noted:
                self._write(rows, stats().steps, stats())
            rows.close()
        stopped = caught or isinstance(error, KeyboardInterrupt)
        stopped = stopped or (isinstance(error, SystemExit) and not error.code)
        # A peer that is stopped does not wait for others.
        stopped = stopped or (early and isinstance(error, TransportError))
        state: State = "finished"
        if error is not None and not stopped:
            # An error of the script after the merge does not undo its training.
            state = "finished" if merge and not isinstance(error, RumorError) else "failed"
        elif (left or error is not None) and (early or stopped):
            state = "left"
        self.tell_end(stats(), state, merge, None if stopped else error)

    def tell_end(
        self,
        stats: PeerStats,
        state: State,
        merge: MergeResult | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Write ``peer.json`` and the model, where that is asked for, and close loggers."""
        folder, evaluate = self._config.out, self.evaluate_end
        if evaluate is not None and state != "failed":
            self._evaluation = evaluate()
        counters, found = stats.counters, self._evaluation
        wall_s = self._stepped_s - self._started_s
        report = self.report = Report(
            id=stats.id,
            index=self.index,
            state=state,
            error=None if error is None else _in_words(error),
            address=stats.address,
            swarm=stats.swarm,
            steps=stats.steps,
            ended_by=stats.ended_by,
            swarm_steps=stats.swarm_steps,
            lives=1 if folder is None else max(1, len(ledger_paths(folder))),
            steps_per_s=(stats.steps - self._steps_before) / wall_s if wall_s else 0.0,
            wall_s=wall_s,
            accuracy=found.accuracy if found else None,
            loss=found.loss if found and math.isfinite(found.loss) else None,
            weight_units=stats.weight_units,
            shards=len(stats.weights),
            messages=counters.messages,
            bytes_sent=counters.bytes_sent,
            pushes=counters.pushes,
            skipped=counters.skipped,
            refusals=counters.refusals,
            rule=stats.rule,
            p=stats.p,
            topology=stats.topology,
            merge=merge,
        )
        if folder is not None and self._writes_end:
            try:
                if state != "failed":
                    path, with_frozen = folder / "model.safetensors", self._config.save_frozen
                    save_peer_model(stats, self._model, self._vector, path, with_frozen=with_frozen)
                report.write(folder)
            except OSError as failure:
                self.failure = failure
                _log.warning("the end of this peer could not be written: %s", failure)
        self._loggers.close(report.as_json())

    def _write(
        self,
        rows: JsonlLog,
        step: int,
        stats: PeerStats,
        averaged: AverageEvaluation | None = None,
        *,
        lr: float | None = None,
        sketched: bool = False,
    ) -> None:
        """Write a row about the steps since the last one, of which *step* was the last."""
        began_s = time.perf_counter()
        is_turn = step % (_ROWS_PER_SKETCH * (self._config.log_every or 1)) == 0
        sketched = sketched or (is_turn and began_s >= self._sketch_due_s)
        evaluation = None if self._is_noted else self._evaluation
        count, counters = self._losses_count, stats.counters
        mixed = counters.mixed - self._mixed
        staleness_steps = counters.staleness_steps - self._staleness_steps
        row = {
            "step": step,
            "swarm_steps": stats.swarm_steps,
            "lr": lr,
            "time_s": self.elapsed_s,
            "unix_s": time.time(),
            **{name: metric.get(stats) for name, metric in METRICS.items()},
            "loss": float(self._losses) / count if count else None,
            "accuracy": evaluation.accuracy if evaluation else None,
            "test_loss": evaluation.loss if evaluation else None,
            "staleness_steps": staleness_steps / mixed if mixed else None,
            **_durations("step_s", self._step_s),
            # Without the exchange, which is mostly waiting under a synchronous rule.
            **_durations("own_s", self._own_s),
            "sketch": sketch(*self._vector.flats) if sketched else None,
            **(averaged.as_row() if averaged else {}),
        }
        self._losses, self._losses_count, self._step_s, self._own_s = 0.0, 0, [], []
        self._mixed, self._staleness_steps = counters.mixed, counters.staleness_steps
        rows.write(row)
        self._loggers.log(stats.id, row)
        self._is_noted = True
        if sketched:
            now = time.perf_counter()
            self._sketch_due_s = now + (now - began_s) / _SKETCHING_PART_MAX

    def stop_serving(self) -> None:
        """Serve nothing any more; twice is harmless."""
        self._unready()
        if self._exporter is not None:
            self._exporter.close()
            self._exporter = None

    def _say_ready(self, id: str) -> None:
        if self._ready is None:
            return
        try:
            self._ready.write_text(f"{id}\n")
        except OSError as error:
            raise ConfigError(f"RUMOR_READY: {self._ready}: {error.strerror or error}") from None

    def _unready(self) -> None:
        if self._ready is not None:
            with suppress(OSError):
                self._ready.unlink()


def _durations(name: str, seconds: list[float]) -> dict[str, float | None]:
    """Mean and standard deviation, seconds."""
    if not seconds:
        return {name: None, f"{name}_sd": None}
    return {name: float(np.mean(seconds)), f"{name}_sd": float(np.std(seconds))}


def _in_words(error: BaseException) -> str:
    return str(error) if isinstance(error, RumorError) else f"{type(error).__name__}: {error}"
