"""Trains a task as one peer of a swarm, and leaves a folder that tells all about it."""

import logging
import threading
import time
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ..gossip import ConfigError, RumorError, TransportError
from .config import PeerConfig
from .partition import split
from .peer import Peer
from .recorder import Recorder
from .report import Report, State
from .sampler import Sampler
from .task import Task
from .tasks import load_task

__all__ = ["RunConfig", "run"]

_log = logging.getLogger("rumor")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What one peer trains.

    Raises:
        ConfigError: A field is out of range.
    """

    task: str = "digits"
    """Name of a built-in task, or ``module:function``."""
    steps: int | None = None
    """Optimizer steps of this peer; the task's own number unless given."""
    lr: float | None = None
    """Learning rate; the task's own unless given."""
    batch_size: int | None = None
    """Samples per step; the task's own unless given."""
    partition: str = "shared"
    """How the data is split among peers."""
    index: int = 0
    """Which part of the data is this peer's, from 0."""
    count: int = 1
    """Into how many parts the data is split."""
    seed: int = 0
    """Of the model's start, the data and the peer's choices; the same for the whole swarm."""
    device: str = "auto"
    """Where to train: ``cpu``, ``cuda``, ``cuda:1``; ``auto`` takes a GPU where there is one."""
    out: Path | None = None
    """Folder for metrics, ledger, model and report; None to keep nothing."""
    log_every: int = 10
    """Steps between two rows of metrics."""
    eval_every: int = 50
    """Steps between two evaluations on held-out data."""
    step_s_min: float = 0.0
    """Steps sleep until they have taken so long, seconds: slowness that costs no core."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "log_every", "eval_every", "count"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}: it must be at least 1")
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise ConfigError(f"lr is {self.lr}: it must be a finite number above 0")
        if not 0 <= self.index < self.count:
            raise ConfigError(f"index is {self.index}: it must be from 0 to {self.count - 1}")
        if not 0 <= self.step_s_min < float("inf"):
            raise ConfigError(f"step_s_min is {self.step_s_min}: it must be 0 or more seconds")


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
        self.task: Task = load_task(config.task, seed=config.seed)
        self._steps = config.steps or self.task.steps
        self._device = _device(config.device)
        torch.manual_seed(config.seed)
        self.model: nn.Module = self.task.model().to(self._device)
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        self._optimizer = self.task.optimizer(trainable, config.lr or self.task.lr)
        self.peer = Peer(self.model, peer_config)
        parts = split(config.partition, self.task.train[1], config.count, config.seed)
        self._sampler = Sampler(
            parts[config.index],
            config.batch_size or self.task.batch_size,
            seed=config.seed,
            peer=self.peer.id,
        )
        self._taken = 0
        self._wall_s = 0.0

    def run(self, stop: threading.Event) -> State:
        out, config = self._config.out, self._config
        with self.peer:
            # What is random in a step, such as dropout, shall differ from peer to peer.
            torch.manual_seed(_own_seed(config.seed, self.peer.id))
            path = out / "metrics.jsonl" if out is not None else None
            recorder = Recorder(path, self.peer, config.log_every)
            started_s = time.perf_counter()
            try:
                while self._taken < self._steps and not stop.is_set():
                    self._step(recorder)
            finally:
                self._wall_s = time.perf_counter() - started_s
                recorder.close()
            if stop.is_set():
                _log.info("leaving after %d steps", self._taken)
                self.peer.leave()
                return "left"
            _log.info("finished %d steps, merging with the others", self._taken)
        return "finished"

    def _step(self, recorder: Recorder) -> None:
        began_s = time.perf_counter()
        inputs, targets = self._batch(self._taken)
        self._optimizer.zero_grad()
        loss = self.task.loss(self.model(inputs), targets)
        loss.backward()
        self._optimizer.step()
        self.peer.step()
        self._taken += 1
        due = self._taken % self._config.eval_every == 0 or self._taken == self._steps
        evaluation = self.task.evaluate(self.model) if due else None
        rest_s = self._config.step_s_min - (time.perf_counter() - began_s)
        if rest_s > 0:
            time.sleep(rest_s)
        step_s = time.perf_counter() - began_s
        recorder.step(self._taken, float(loss.detach()), step_s, evaluation)

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        indices = torch.from_numpy(self._sampler.batch(step))
        inputs, targets = self.task.train
        return inputs[indices].to(self._device), targets[indices].to(self._device)

    def report(self, state: State, error: str | None = None) -> Report:
        """Say how it ended, and keep the model unless it failed."""
        peer, tally = self.peer, self.peer.tally
        evaluation = self.task.evaluate(self.model) if state != "failed" else None
        report = Report(
            id=peer.id,
            index=self._config.index,
            state=state,
            error=error,
            address=peer.address,
            steps=self._taken,
            steps_per_s=self._taken / self._wall_s if self._wall_s else 0.0,
            wall_s=self._wall_s,
            accuracy=evaluation.accuracy if evaluation else None,
            loss=evaluation.loss if evaluation else None,
            weight_units=peer.weight_units,
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
            "step": str(self._taken),
            "schema": self.peer.vector.schema.hash.hex(),
        }
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.model.state_dict().items()
        }
        draft = path.with_suffix(".draft")
        save_file(tensors, draft, metadata=metadata)
        draft.replace(path)


def _require_empty(folder: Path) -> None:
    if (folder / "ledger.jsonl").exists() or (folder / "peer.json").exists():
        raise ConfigError(f"{folder} holds another run: name a new folder")


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device is {name!r}, which is not to be had: {reason}") from None


def _own_seed(seed: int, peer: str) -> int:
    digest = blake2b(f"{seed}\0{peer}\0torch".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
