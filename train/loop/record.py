"""What a peer in a loop of somebody's own leaves in its folder: metrics, its end, its model."""

import logging
import math
import time
from pathlib import Path
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from ...gossip import Rule
from ...gossip.weight import Units
from ..config import PeerConfig
from ..runtime.shutdown import MergeResult
from ..storage.ledger_file import ledger_paths
from ..storage.merge import save_model
from ..tasks.task import Evaluation
from ..tensors.layout import as_text, runs_of, with_aliases
from .average import AverageEvaluation, evaluation_of
from .metrics import Measured, Recorder, Report, State

__all__ = ["LoopRecord", "Loss", "Recorded", "save_peer_model"]

_log = logging.getLogger("rumor")

Loss = float | Tensor
"""Of a batch: a number, or a tensor with one."""

# Among the rows that are due; the launcher estimates the consensus distance from sketches.
_ROWS_PER_SKETCH: Final = 5

# Part of the time that sketches of a large model may take.
_SKETCHING_PART_MAX: Final = 0.02


class Recorded(Measured, Protocol):
    """The part of a `Peer` that its end and its model are told with."""

    id: str
    config: PeerConfig
    rule: Rule
    merged: MergeResult | None

    @property
    def address(self) -> str | None:
        """As `Peer` has it, and so the others."""

    @property
    def steps(self) -> int:
        """Its own."""

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
        folder: The peer's, which is there.
        peer: Whose loop it is; it has been let in.
        model: The peer's.
        log_every: Steps between two rows.
    """

    def __init__(self, folder: Path, peer: Recorded, model: nn.Module, log_every: int) -> None:
        self._folder, self._peer, self._model = folder, peer, model
        # What it says of an earlier incarnation would pass for the end of this one.
        (folder / "peer.json").unlink(missing_ok=True)
        self._rows = Recorder(folder / "metrics.jsonl", peer, log_every)
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

    def end(self, state: State, error: str | None = None) -> None:
        """Write the last row, how it ended, and, unless it failed, the model."""
        if self._evaluation is not None:
            self._write(self._peer.steps)
        self._rows.close()
        try:
            if state != "failed":
                save_peer_model(self._peer, self._model, self._folder / "model.safetensors")
            self._report(state, error).write(self._folder)
        except OSError as failure:
            _log.warning("the end of this peer could not be written: %s", failure)

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
        peer, counters = self._peer, self._peer.counters
        wall_s = self._stepped_s - self._started_s
        measured, rule = self._evaluated, peer.rule
        return Report(
            id=peer.id,
            index=0,
            state=state,
            error=error,
            address=peer.address,
            steps=peer.steps,
            swarm_steps=peer.swarm_steps,
            lives=max(1, len(ledger_paths(self._folder))),
            steps_per_s=(peer.steps - self._steps_before) / wall_s if wall_s else 0.0,
            wall_s=wall_s,
            accuracy=measured.accuracy if measured else None,
            loss=measured.loss if measured and math.isfinite(measured.loss) else None,
            weight_units=peer.weight_units,
            shards=peer.config.shards,
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


def save_peer_model(peer: Recorded, model: nn.Module, path: Path) -> None:
    """Write a peer's model with what merging needs to know: the peer, its weight, its shards.

    Raises:
        OSError: It cannot be written; what was there still is.
    """
    schema = peer.vector.schema
    metadata = {
        "peer": peer.id,
        "weight_units": str(peer.weight_units),
        "step": str(peer.steps),
        "schema": schema.hash.hex(),
    }
    if schema.shards > 1:
        metadata["shard_units"] = ",".join(map(str, peer.shard_units))
        metadata["shard_runs"] = as_text(with_aliases(runs_of(schema), model))
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }
    save_model(path, tensors, metadata)
