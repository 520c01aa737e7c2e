"""What a peer in a loop of somebody's own leaves in its folder: metrics, its end, its model."""

import json
import logging
import math
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from ...gossip.types import Incarnation, PeerId
from ...gossip.weight import Units
from ..config import PeerConfig
from ..loggers.logger import LoggedRun
from ..loggers.writer import LogWriter
from ..model import frozen_names, named_state
from ..runtime.shutdown import MergeResult
from ..storage.ledger_file import ledger_paths
from ..storage.merge import save_model
from ..storage.shard_runs import as_text, runs_of, with_aliases
from ..tasks.task import Evaluation
from .average import AverageEvaluation, evaluation_of
from .metrics import Measured, Recorder, Report, State

__all__ = ["LoopRecord", "Loss", "Recorded", "logged_run", "report_of", "save_peer_model"]

_log = logging.getLogger("rumor")

Loss = float | Tensor
"""Of a batch: a number, or a tensor with one."""

# Among the rows that are due; the launcher estimates the consensus distance from sketches.
_ROWS_PER_SKETCH: Final = 5

# Part of the time that sketches of a large model may take.
_SKETCHING_PART_MAX: Final = 0.02


class Recorded(Measured, Protocol):
    """The part of a `Peer` that its end and its model are told with."""

    config: PeerConfig
    merged: MergeResult | None

    @property
    def address(self) -> str | None:
        """The first of them."""

    @property
    def ended_by(self) -> str:
        """Another peer."""

    @property
    def met(self) -> Collection[tuple[PeerId, Incarnation]]:
        """Peers that were in its swarm."""

    @property
    def weight_units(self) -> Units:
        """Of all shards."""

    @property
    def shard_units(self) -> tuple[Units, ...]:
        """Of each."""


class LoopRecord:
    """Writes ``metrics.jsonl`` as the loop goes, ``peer.json`` and the model at its end.

    What the disk does not take costs a warning, and training goes on.

    Args:
        folder: The peer's, which is there; None to feed loggers alone.
        peer: Whose loop it is; it has been let in.
        model: The peer's.
        log_every: Steps between two rows.
        loggers: Who else gets the rows; they are opened here.
    """

    def __init__(
        self,
        folder: Path | None,
        peer: Recorded,
        model: nn.Module,
        log_every: int,
        loggers: LogWriter,
    ) -> None:
        self._folder, self._peer, self._model = folder, peer, model
        self._loggers = loggers
        if folder is not None:
            # What it says of an earlier incarnation would pass for the end of this one.
            (folder / "peer.json").unlink(missing_ok=True)
        path = None if folder is None else folder / "metrics.jsonl"
        self._rows = Recorder(path, peer, log_every, loggers=loggers)
        loggers.open(logged_run(peer))
        self._log_every = log_every
        self._losses: Tensor | float = 0.0
        self._losses_count = 0
        self._evaluation: Evaluation | None = None
        self._evaluated: Evaluation | None = None
        self._steps_before = peer.steps
        self._started_s = self._stepped_s = time.perf_counter()
        self._sketch_due_s = -math.inf

    def stepped(
        self, loss: Loss | None, exchange_s: float, averaged: AverageEvaluation | None = None
    ) -> None:
        """Note a step of the peer.

        Args:
            loss: On its batch. A tensor is read where a row is written, so that a GPU is not
                waited for in each step.
            exchange_s: How long the step pushed, mixed and waited for others, seconds.
            averaged: What was measured of the average after it; that belongs to no step.
        """
        now, step = time.perf_counter(), self._peer.steps
        if loss is not None:
            self._losses = self._losses + (loss.detach() if isinstance(loss, Tensor) else loss)
            self._losses_count += 1
        apart_s = averaged.wall_s if averaged else 0.0
        self._rows.note(None, now - self._stepped_s - apart_s, exchange_s)
        if averaged or self._rows.is_due(step) or step == self._steps_before + 1:
            self._write(step, averaged)
        # What the row itself took belongs to no step.
        self._stepped_s = time.perf_counter()

    def evaluated(self, accuracy: float | None, loss: float | None) -> None:
        """Note what was measured on held-out data; it goes into the next row."""
        self._evaluation = self._evaluated = evaluation_of(accuracy=accuracy, loss=loss)

    @property
    def has_merged(self) -> bool:
        """True if the peer has agreed with the others on the average."""
        return bool(self._peer.merged)

    def end(self, state: State, error: str | None = None) -> None:
        """Write the last row, how it ended, and, unless it failed, the model."""
        if self._evaluation is not None:
            self._write(self._peer.steps)
        self._rows.close()
        report = self._report(state, error)
        if self._folder is not None:
            try:
                if state != "failed":
                    save_peer_model(self._peer, self._model, self._folder / "model.safetensors")
                report.write(self._folder)
            except OSError as failure:
                _log.warning("the end of this peer could not be written: %s", failure)
        self._loggers.close(report.as_json())

    def _write(self, step: int, averaged: AverageEvaluation | None = None) -> None:
        if self._losses_count:
            self._rows.note_loss(float(self._losses) / self._losses_count)
            self._losses, self._losses_count = 0.0, 0
        began_s = time.perf_counter()
        sketched = step % (_ROWS_PER_SKETCH * self._log_every) == 0
        sketched = sketched and began_s >= self._sketch_due_s
        self._rows.write(step, None, self._evaluation, sketched=sketched, averaged=averaged)
        self._evaluation = None
        if sketched:
            now = time.perf_counter()
            self._sketch_due_s = now + (now - began_s) / _SKETCHING_PART_MAX

    def _report(self, state: State, error: str | None) -> Report:
        return report_of(
            self._peer,
            state,
            error,
            folder=self._folder,
            steps_before=self._steps_before,
            wall_s=self._stepped_s - self._started_s,
            evaluation=self._evaluated,
        )


def report_of(
    peer: Recorded,
    state: State,
    error: str | None,
    *,
    folder: Path | None,
    steps_before: int,
    wall_s: float,
    evaluation: Evaluation | None,
    index: int = 0,
) -> Report:
    """Say how a peer ended.

    Args:
        peer: Which one.
        state: How.
        error: What went wrong, in words.
        folder: The peer's, which knows of earlier incarnations; None where there is none.
        steps_before: That those took.
        wall_s: From this one's first step to its last, seconds.
        evaluation: Of its model, the last one.
        index: Which part of the data it had.
    """
    counters, rule = peer.counters, peer.rule
    return Report(
        id=peer.id,
        index=index,
        state=state,
        error=error,
        address=peer.address,
        swarm=peer.swarm,
        steps=peer.steps,
        ended_by=peer.ended_by,
        swarm_steps=peer.swarm_steps,
        lives=1 if folder is None else max(1, len(ledger_paths(folder))),
        steps_per_s=(peer.steps - steps_before) / wall_s if wall_s else 0.0,
        wall_s=wall_s,
        accuracy=evaluation.accuracy if evaluation else None,
        loss=evaluation.loss if evaluation and math.isfinite(evaluation.loss) else None,
        weight_units=peer.weight_units,
        shards=peer.vector.schema.shards,
        messages=counters.messages,
        bytes_sent=counters.bytes_sent,
        pushes=counters.pushes,
        skipped=counters.skipped,
        refusals=counters.refusals,
        rule=rule.name,
        p=getattr(rule, "p", None),
        topology=peer.config.topology,
        merge=peer.merged,
    )


def logged_run(peer: Recorded, settings: Mapping[str, Any] | None = None) -> LoggedRun:
    """What loggers are told of a peer that writes its own rows.

    Args:
        peer: It has been let in.
        settings: Of its training, where they are known.
    """
    config, rule = peer.config, peer.rule
    own = {
        **{"rule": rule.name, "p": getattr(rule, "p", None), "topology": config.topology},
        **{"seed": config.seed, "shards": config.shards, "wire": config.protocol.wire},
    }
    return LoggedRun(
        name=f"swarm-{peer.swarm[:8]}",
        peer=peer.id,
        folder=config.out,
        config={**own, **(settings or {})},
    )


def save_peer_model(peer: Recorded, model: nn.Module, path: Path) -> None:
    """Write a peer's model with what merging needs to know: the peer, its weight, its shards.

    Frozen parameters are in it unless `PeerConfig.save_frozen` says no, and extra state where it is
    a tensor.

    Raises:
        OSError: It cannot be written; what was there still is.
    """
    schema, state = peer.vector.schema, named_state(model)
    state = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if not peer.config.save_frozen:
        left_out = frozen_names(model, peer.vector.layout.travelling)
        state = {name: value for name, value in state.items() if name not in left_out}
    metadata = {
        "peer": peer.id,
        "weight_units": str(peer.weight_units),
        "step": str(peer.steps),
        "schema": schema.hash.hex(),
        "swarm": peer.swarm,
        "met": json.dumps(sorted(peer.met)),
    }
    local = {placed.tensor.data_ptr() for placed in peer.vector.layout.local}
    if own := sorted(name for name, value in state.items() if value.data_ptr() in local):
        metadata["local"] = json.dumps(own)
    if schema.shards > 1:
        metadata["shard_units"] = ",".join(map(str, peer.shard_units))
        metadata["shard_runs"] = as_text(with_aliases(runs_of(schema), state))
        if orders := {tensor.name: tensor.axes for tensor in schema.tensors if tensor.order}:
            metadata["shard_orders"] = as_text(with_aliases(orders, state))
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }
    save_model(path, tensors, metadata)
