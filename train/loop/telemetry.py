"""Telemetry of a peer: rows of metrics, the average of all peers, Prometheus, and its end."""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...gossip import ConfigError, RumorError, TransportError
from ...gossip.weight import in_units
from ..config import PeerConfig
from ..loggers.logger import LoggedRun, make_loggers
from ..loggers.writer import LogWriter
from ..model import frozen_names, named_state
from ..runtime.shutdown import MergeResult
from ..runtime.telling.stats import METRICS, PeerStats
from ..storage.files import write_json
from ..storage.jsonl import JsonlLog
from ..storage.ledger_file import ledger_paths
from ..storage.merge import save_model, write_schema
from ..tasks.task import Evaluation
from ..tensors.blocks import sketch_of
from ..tensors.vector import Vector
from .average import Average, AverageEvaluator, Evaluate, evaluation_of
from .exporter import Exporter

__all__ = ["Loss", "Report", "Telemetry", "save_peer_model"]

Loss = float | Tensor
"""Loss of a batch: a number, or a tensor with one element."""

State = Literal["finished", "left", "failed"]


_FIGURES: Final = (
    *("id", "address", "swarm", "steps", "swarm_steps", "ended_by", "weight_units"),
    *("rule", "p", "topology"),
)
"""Fields of `PeerStats` that are in a report besides `METRICS`."""

_log = logging.getLogger("rumor")

# Only rows that are due count; the launcher estimates the consensus distance from sketches.
_ROWS_PER_SKETCH: Final = 5

# Fraction of the time that sketches of a large model may take.
_SKETCHING_PART_MAX: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of one peer."""

    stats: PeerStats
    """Its figures at the end; counts are those of its last incarnation."""
    index: int
    state: State
    error: str | None = None
    """Error message."""
    lives: int = 1
    """Number of incarnations, as far as this folder shows."""
    steps_per_s: float = 0.0
    wall_s: float = 0.0
    """Time from the first step to the last."""
    accuracy: float | None = None
    loss: float | None = None
    """Loss on held-out data at the end."""
    merge: MergeResult | None = None
    """Result of merging with the others; None if not begun."""

    def as_json(self) -> dict[str, Any]:
        """Return all figures as JSON values, as in ``peer.json``."""
        stats = self.stats
        told = {name: getattr(stats, name) for name in _FIGURES}
        told |= {name: metric.get(stats) for name, metric in METRICS.items()}
        told |= {each.name: getattr(self, each.name) for each in fields(self)[1:]}
        # A result that is not complete is false.
        merge = None if self.merge is None else asdict(self.merge)
        return told | {"shards": len(stats.weights), "merge": merge}


class Telemetry:
    """Reports a peer's training: rows while its loop runs, and its end.

    If the disk cannot be written, it logs a warning, and training continues. *ready* is a file that
    exists while the peer is a member.

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
        self._evaluator: AverageEvaluator | None = None
        if evaluate is not None and evaluate_every is not None:
            self._evaluator = AverageEvaluator(model, evaluate, evaluate_every)
        # From here to `report`: only `rumor peer` sets these, before the start.
        self.settings: Mapping[str, Any] | None = None
        """Settings of the run, for loggers; if set, the end is written even without rows."""
        self.index = 0
        """Index of the part of the data that is trained on."""
        self.before_s = 0.0
        """Training time of earlier incarnations, seconds."""
        self.after_exchange: Callable[[float], bool] | None = None
        """Called in each step, before its row, with the seconds to exclude from the step; returns
        True if the step must have a row with a sketch."""
        self.evaluate_end: Callable[[], Evaluation] | None = None
        """Measures the model at the end."""
        self.report: Report | None = None
        """The peer's end; None before."""
        self.failure: OSError | None = None
        """Error from writing the end."""
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
        """Start serving metrics, if configured; raise `ConfigError` if the port is taken."""
        # A killed process may have left the file.
        self._unready()
        if self._config.metrics_port is None:
            return
        self._exporter = Exporter(stats, self._config.metrics_port, self._config.metrics_host)
        # Warnings are visible even if a script does not show information: a free port is otherwise
        # unknown.
        level = logging.INFO if self._config.metrics_port else logging.WARNING
        _log.log(level, "metrics at %s", self._exporter.url)

    @property
    def metrics_url(self) -> str | None:
        """Address of the metrics; None while they are not served."""
        return None if self._exporter is None else self._exporter.url

    def begin(self, stats: Callable[[], PeerStats]) -> None:
        """Start writing rows, if configured, once the peer has joined; raise `ConfigError` if the
        *ready* file cannot be written."""
        first = stats()
        if self._ready is not None:
            try:
                self._ready.write_text(f"{first.id}\n")
            except OSError as error:
                why = error.strerror or error
                raise ConfigError(f"RUMOR_READY: {self._ready}: {why}") from None
        self._steps_before = first.steps
        self._started_s = self._stepped_s = time.perf_counter()
        out, log_every = self._config.out, self._config.log_every
        if out is not None and self._writes_end:
            # The file of an earlier incarnation would be mistaken for the end of this one.
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
        """Training time so far, including earlier incarnations, seconds."""
        return self.before_s + (time.perf_counter() - self._started_s if self._started_s else 0.0)

    def stepped(
        self,
        step: int,
        loss: Loss | None,
        exchange_s: float,
        *,
        lr: float | None,
        stats: Callable[[], PeerStats],
        average: Callable[[], Average],
    ) -> float:
        """Record a step, *exchange_s* of which went to pushing, mixing and waiting for others.

        Returns:
            Time taken to measure the average of all peers, which counts for no step, seconds.
        """
        if loss is not None:
            # A tensor is read on request or for a row only: not every step waits for a GPU.
            loss = self._loss = loss.detach() if isinstance(loss, Tensor) else loss
        averaged, apart_s, evaluator = None, 0.0, self._evaluator
        if evaluator is not None and evaluator.is_due(step, stats):
            began_s = time.perf_counter()
            averaged = evaluator.measure(average())
            apart_s = time.perf_counter() - began_s
        is_due = self.after_exchange is not None and self.after_exchange(apart_s)
        if self._rows is not None and self._config.log_every is not None:
            if loss is not None:
                self._losses, self._losses_count = self._losses + loss, self._losses_count + 1
            step_s = time.perf_counter() - self._stepped_s - apart_s
            self._step_s.append(step_s)
            self._own_s.append(step_s - exchange_s)
            if averaged or is_due or step % self._config.log_every == 0 or step == 1:
                self._write(self._rows, step, stats(), averaged, lr=lr, sketched=is_due)
        # Exclude the time for the row from the next step.
        self._stepped_s = time.perf_counter()
        return apart_s

    def evaluated(self, accuracy: float | None, loss: float | None) -> None:
        """Record metrics on held-out data for the next row."""
        told = {"accuracy": accuracy, "test_loss": loss}
        self._measured = {name: float(value) for name, value in told.items() if value is not None}
        self._evaluation = evaluation_of(accuracy=accuracy, loss=loss)
        self._is_noted = False

    def measured(self, *, from_device: bool = True) -> dict[str, float]:
        """Return the latest ``loss``, ``accuracy`` and ``test_loss``; safe on any thread.

        Without *from_device*, a loss that is not in host memory is left out.
        """
        loss = self._loss
        if isinstance(loss, Tensor) and not (from_device or loss.is_cpu):
            loss = None
        try:
            return self._measured if loss is None else {"loss": float(loss), **self._measured}
        except (RuntimeError, TypeError, ValueError):
            # A loop may pass a loss that is not a number. Writing a row reports that; serving
            # threads must not die of it.
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
        """Record how the loop ended, and write it if configured.

        Args:
            error: The exception that ended the loop; None if it was completed.
            caught: Whether a signal was received.
            early: Whether it left before the end of the loop, or was asked to stop.
        """
        # Rows reference the peer, and the peer this object.
        rows, self._rows = self._rows, None
        if rows is not None:
            if not self._is_noted:
                self._write(rows, stats().steps, stats())
            rows.close()
        stopped = caught or isinstance(error, KeyboardInterrupt)
        stopped = stopped or (isinstance(error, SystemExit) and not error.code)
        # A stopped peer does not wait for others.
        stopped = stopped or (early and isinstance(error, TransportError))
        state: State = "finished"
        if error is not None and not stopped:
            # A script's error after the merge does not invalidate its training.
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
        """Write ``peer.json`` and the model, if configured, and close loggers."""
        folder, evaluate = self._config.out, self.evaluate_end
        if evaluate is not None and state != "failed":
            self._evaluation = evaluate()
        found, wall_s = self._evaluation, self._stepped_s - self._started_s
        report = self.report = Report(
            stats=stats,
            index=self.index,
            state=state,
            error=None if error is None else _in_words(error),
            lives=1 if folder is None else max(1, len(ledger_paths(folder))),
            steps_per_s=(stats.steps - self._steps_before) / wall_s if wall_s else 0.0,
            wall_s=wall_s,
            accuracy=found.accuracy if found else None,
            loss=found.loss if found and math.isfinite(found.loss) else None,
            merge=merge,
        )
        if folder is not None and self._writes_end:
            try:
                if state != "failed":
                    path, with_frozen = folder / "model.safetensors", self._config.save_frozen
                    save_peer_model(stats, self._model, self._vector, path, with_frozen=with_frozen)
            except OSError as failure:
                self._lose_end(failure)
                words = f"the model could not be written: {failure.strerror or failure}"
                report = self.report = replace(report, state="failed", error=words)
            try:
                write_json(folder / "peer.json", report.as_json())
            except OSError as failure:
                self._lose_end(failure)
        self._loggers.close(report.as_json())

    def _lose_end(self, failure: OSError) -> None:
        self.failure = failure
        _log.warning("the end of this peer could not be written: %s", failure)

    def _write(
        self,
        rows: JsonlLog,
        step: int,
        stats: PeerStats,
        averaged: Mapping[str, Any] | None = None,
        *,
        lr: float | None = None,
        sketched: bool = False,
    ) -> None:
        """Write a row about the steps since the previous row, up to *step*."""
        began_s = time.perf_counter()
        is_turn = step % (_ROWS_PER_SKETCH * (self._config.log_every or 1)) == 0
        sketched = sketched or (is_turn and began_s >= self._sketch_due_s)
        if sketched:
            self._vector.refresh()
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
            # The exchange is excluded: under a synchronous rule it is mostly waiting.
            **_durations("own_s", self._own_s),
            "sketch": [*sketch_of(self._vector.flats)] if sketched else None,
            **(averaged or {}),
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
        """Stop serving; may be called twice."""
        self._unready()
        if self._exporter is not None:
            self._exporter.close()
            self._exporter = None

    def _unready(self) -> None:
        if self._ready is not None:
            with suppress(OSError):
                self._ready.unlink()


def _durations(name: str, seconds: list[float]) -> dict[str, float | None]:
    """Return mean and standard deviation, seconds."""
    if not seconds:
        return {name: None, f"{name}_sd": None}
    return {name: float(np.mean(seconds)), f"{name}_sd": float(np.std(seconds))}


def _in_words(error: BaseException) -> str:
    return str(error) if isinstance(error, RumorError) else f"{type(error).__name__}: {error}"


def save_peer_model(
    stats: PeerStats, model: nn.Module, vector: Vector, path: Path, *, with_frozen: bool
) -> None:
    """Write a peer's model with the data that merging needs: the peer, its weight, its shards.

    Extra state is included if it is a tensor.

    Raises:
        OSError: It cannot be written; an existing file is unchanged.
    """
    left_out = () if with_frozen else frozen_names(model, vector.layout.travelling)
    schema, named = vector.schema, named_state(model).items()
    state = {n: v for n, v in named if isinstance(v, Tensor) and n not in left_out}
    metadata = {
        "peer": stats.id,
        "weight_units": str(stats.weight_units),
        "step": str(stats.steps),
        "schema": json.dumps(write_schema(replace(schema, frozen=()))),
        "swarm": stats.swarm,
        "met": json.dumps(sorted(stats.met)),
    }
    if schema.shards > 1:
        metadata["shard_units"] = ",".join(str(in_units(weight)) for weight in stats.weights)
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }
    save_model(path, tensors, metadata)
