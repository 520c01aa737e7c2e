"""Trains a task as one peer of a swarm, and leaves a folder that tells all about it."""

import logging
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ..gossip import ConfigError, RumorError, TransportError
from .config import PeerConfig, RunConfig
from .learner import Learner
from .peer import Peer
from .recorder import Recorder
from .report import Report, State
from .shard_runs import as_text, runs_of, with_aliases

__all__ = ["RunConfig", "run"]

_log = logging.getLogger("rumor")


def run(
    config: RunConfig, peer_config: PeerConfig, *, stop: threading.Event | None = None
) -> Report:
    """Train as one peer until its steps are done or *stop* is set.

    Args:
        config: What to train.
        peer_config: How to take part.
        stop: When set, the peer leaves: it hands its weight on and ends.

    Returns:
        How it ended; also in ``peer.json``, where there is a folder.

    Raises:
        ConfigError: A setting is out of range, or the folder holds another run; nothing was
            written.
        RumorError: The run failed; ``peer.json`` says so too.
    """
    if config.out is not None:
        _require_empty(config.out)
    elif config.journal and peer_config.out is None:
        raise ConfigError("a journal needs a folder: say where with out")
    training = _Training(config, replace(peer_config, out=config.out or peer_config.out))
    training.peer.stop = stop = stop or training.peer.stop
    try:
        state = training.run(stop)
    except ConfigError:
        raise
    except RumorError as error:
        if not (stop.is_set() and isinstance(error, TransportError)):
            training.report("failed", str(error))
            raise
        _log.info("%s", error)
        state = "left"
    return training.report(state)


class _Training:
    """One run of one peer."""

    def __init__(self, config: RunConfig, peer_config: PeerConfig) -> None:
        self._config = config
        peer_config = replace(peer_config, id=peer_config.named())
        self.learner = Learner(config, peer_config.named())
        self.peer = Peer(self.learner.model, peer_config)
        if config.journal:
            self.peer.journaled = _settings(config, self.learner)
        self._wall_s = 0.0

    @property
    def _model(self) -> nn.Module:
        return self.learner.model

    def run(self, stop: threading.Event) -> State:
        out, config, learner = self._config.out, self._config, self.learner
        with self.peer:
            learner.start()
            path = out / "metrics.jsonl" if out is not None else None
            recorder = Recorder(path, self.peer, config.log_every)
            started_s = time.perf_counter()
            try:
                while learner.taken < learner.steps and not stop.is_set():
                    self._step(recorder)
            finally:
                self._wall_s = time.perf_counter() - started_s
                learner.close()
                recorder.close()
            if stop.is_set():
                _log.info("leaving after %d steps", learner.taken)
                self.peer.leave()
                return "left"
            _log.info("finished %d steps, merging with the others", learner.taken)
        return "finished"

    def _step(self, recorder: Recorder) -> None:
        began_s = time.perf_counter()
        loss = self._train()
        evaluation = self.learner.evaluation()
        rest_s = self._config.step_s_min - (time.perf_counter() - began_s)
        if rest_s > 0:
            time.sleep(rest_s)
        step_s = time.perf_counter() - began_s
        recorder.step(self.learner.taken, float(loss), step_s, evaluation)

    def _train(self) -> Tensor:
        journal = self.peer.journal
        if journal is None:
            loss = self.learner.step()
            self.peer.step()
            return loss
        batch = self.learner.batch()
        journal.began(batch)
        loss = self.learner.step(batch)
        journal.trained(float(loss))
        self.peer.step()
        journal.check()
        return loss

    def report(self, state: State, error: str | None = None) -> Report:
        """Say how it ended, and keep the model unless it failed."""
        peer, tally = self.peer, self.peer.tally
        evaluation = self.learner.task.evaluate(self._model) if state != "failed" else None
        report = Report(
            id=peer.id,
            index=self._config.index,
            state=state,
            error=error,
            address=peer.address,
            steps=self.learner.taken,
            steps_per_s=self.learner.taken / self._wall_s if self._wall_s else 0.0,
            wall_s=self._wall_s,
            accuracy=evaluation.accuracy if evaluation else None,
            loss=evaluation.loss if evaluation else None,
            weight_units=peer.weight_units,
            shards=peer.config.shards,
            messages=tally.messages,
            bytes_sent=tally.bytes_sent,
            pushes=tally.pushes,
            skipped=tally.skipped,
            refusals=tally.refusals,
        )
        if self._config.out is not None:
            if state != "failed":
                self._save_model(self._config.out / "model.safetensors")
            report.write(self._config.out)
        return report

    def _save_model(self, path: Path) -> None:
        metadata = {
            "peer": self.peer.id,
            "weight_units": str(self.peer.weight_units),
            "step": str(self.learner.taken),
            "schema": self.peer.vector.schema.hash.hex(),
        }
        schema = self.peer.vector.schema
        if schema.shards > 1:
            metadata["shard_units"] = ",".join(map(str, self.peer.shard_units))
            metadata["shard_runs"] = as_text(with_aliases(runs_of(schema), self._model))
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self._model.state_dict().items()
        }
        draft = path.with_suffix(".draft")
        save_file(tensors, draft, metadata=metadata)
        draft.replace(path)


def _require_empty(folder: Path) -> None:
    if (folder / "ledger.jsonl").exists() or (folder / "peer.json").exists():
        raise ConfigError(f"{folder} holds another run: name a new folder")


def _settings(config: RunConfig, learner: Learner) -> dict[str, Any]:
    """What a replay needs to train the same: the fields of *config*, as values that JSON has."""
    # A replay prepares each batch when it is due: the same ones, without a thread for each peer.
    return asdict(config) | {"device": str(learner.device), "out": None, "prefetch": 0}
