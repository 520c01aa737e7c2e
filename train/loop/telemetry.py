"""What is told of a peer while its loop runs: rows of metrics, the average of all, Prometheus."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from ...gossip import ConfigError, RumorError
from ..config import PeerConfig
from ..loggers.registry import make_loggers
from ..loggers.writer import LogWriter
from .average import Average, AverageEvaluation, AverageEvaluator, Evaluate
from .exporter import Exported, Exporter
from .record import LoopRecord, Loss, Recorded

__all__ = ["Telemetry"]

_log = logging.getLogger("rumor")


class _Watched(Recorded, Exported, Protocol):
    """The part of a `Peer` that is told."""

    def average(self, timeout_s: float = 10.0) -> Average:
        """As `Peer` has it."""


class Telemetry:
    """Feeds whoever wants to know how a peer's training goes.

    Args:
        config: The peer's.
        model: The peer's.
        evaluate: Measures the average of all peers' models; None not to.
        evaluate_every: Steps between two such measurements.
        ready: A file that is there as long as the peer is a member; None for none.

    Raises:
        ConfigError: A logger cannot be made, or only one of the last two is given.
    """

    def __init__(
        self,
        config: PeerConfig,
        model: nn.Module,
        evaluate: Evaluate | None,
        evaluate_every: int | None,
        ready: Path | None = None,
    ) -> None:
        if (evaluate is None) is not (evaluate_every is None):
            raise ConfigError("evaluate and evaluate_every go together: give both, or neither")
        self._config, self._model, self._ready = config, model, ready
        self.averaged: AverageEvaluation | None = None
        """What the peer has measured last of the average of all."""
        self._evaluator: AverageEvaluator | None = None
        if evaluate is not None and evaluate_every is not None:
            self._evaluator = AverageEvaluator(model, evaluate, evaluate_every)
        self._loggers = LogWriter(make_loggers(config.loggers))
        self._record: LoopRecord | None = None
        self._exporter: Exporter | None = None
        self._loss: Loss | None = None
        self._measured: dict[str, float] = {}

    def serve(self, peer: _Watched) -> None:
        """Serve metrics from now on, where that is asked for.

        Raises:
            ConfigError: The port is in use, or cannot be had.
        """
        # A process that was killed has left it.
        self._unready()
        if self._config.metrics_port is None:
            return
        self._exporter = Exporter(peer, self._config.metrics_port, self._config.metrics_host)
        # A script need not show information, and else nobody would know a free port.
        level = logging.INFO if self._config.metrics_port else logging.WARNING
        _log.log(level, "metrics at %s", self._exporter.url)

    @property
    def metrics_url(self) -> str | None:
        """Where metrics are served; None where they are not, or not now."""
        return None if self._exporter is None else self._exporter.url

    def begin(self, peer: _Watched) -> None:
        """Write rows from now on, where that is asked for: the peer has been let in.

        Raises:
            ConfigError: The file that says so cannot be written.
        """
        self._say_ready(peer.id)
        out, log_every = self._config.out, self._config.log_every
        if log_every is not None and (out is not None or self._loggers):
            self._record = LoopRecord(out, peer, self._model, log_every, self._loggers)

    def stepped(self, peer: _Watched, loss: Loss | None, exchange_s: float) -> float:
        """Note a step.

        Args:
            peer: Who took it.
            loss: On its batch.
            exchange_s: How long the step pushed, mixed and waited for others, seconds.

        Returns:
            How long it took to measure the average of all, which belongs to no step, seconds.
        """
        if loss is not None:
            # A tensor is read when it is asked for: a GPU is not waited for in each step.
            self._loss = loss.detach() if isinstance(loss, Tensor) else loss
        averaged, evaluator = None, self._evaluator
        if evaluator is not None and evaluator.is_due(peer.steps, peer.id, lambda: peer.live):
            averaged = self.averaged = evaluator.measure(peer.steps, peer.average)
        if self._record is not None:
            self._record.stepped(loss, exchange_s, averaged)
        return averaged.wall_s if averaged else 0.0

    def evaluated(self, accuracy: float | None, loss: float | None) -> None:
        """Note what was measured on held-out data."""
        told = {"accuracy": accuracy, "test_loss": loss}
        self._measured = {name: float(value) for name, value in told.items() if value is not None}
        if self._record is not None:
            self._record.evaluated(accuracy, loss)

    def told(self) -> dict[str, float]:
        """What was noted last: ``loss``, ``accuracy``, ``test_loss``; on any thread."""
        loss = self._loss
        return self._measured if loss is None else {"loss": float(loss), **self._measured}

    def end(self, error: BaseException | None, *, caught: bool, left: bool, early: bool) -> None:
        """Write how it ended, where rows are written.

        Args:
            error: What ended the loop; None where it came to its end.
            caught: Whether a signal had come.
            left: Whether the peer has left.
            early: Whether that was before the end of the loop, or it was told to stop.
        """
        if self._record is None:
            return
        # It keeps the peer, and the peer keeps this.
        record, self._record = self._record, None
        stopped = caught or isinstance(error, KeyboardInterrupt)
        stopped = stopped or (isinstance(error, SystemExit) and not error.code)
        if error is not None and not stopped:
            # An error of the script after the merge does not undo its training.
            is_over = record.has_merged and not isinstance(error, RumorError)
            record.end("finished" if is_over else "failed", f"{type(error).__name__}: {error}")
        elif left and (early or stopped):
            record.end("left")
        else:
            record.end("finished")

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
