"""The average of all peers' models while they train, which reads each model but mixes none."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from ...gossip import ConfigError
from ...gossip.protocol.protocol import Protocol
from ...gossip.types import ShareId
from ...gossip.weight import UNIT, founders
from ...gossip.wire.formats import Form
from ..runtime.runner import PeerRuntime
from ..runtime.telling.stats import AverageEvaluation, PeerStats
from ..tasks.task import Evaluation
from ..tensors.layout import Part
from ..tensors.vector import Flats, Vector

__all__ = [
    "Average",
    "AverageEvaluator",
    "Evaluate",
    "average",
    "evaluation_of",
]

Evaluate = Callable[[nn.Module], Mapping[str, float]]
"""Measures a model on held-out data: ``accuracy``, ``loss`` or both, as `Peer.log` takes them."""

# A request may be lost, or arrive before the other peer holds anything.
_AGAIN_S: Final = 0.25

# Bounds on how long an evaluation waits for one peer, and its ratio to the last reading time.
_PATIENCE: Final = 4
_PATIENCE_S_MIN: Final = 1.0
_PATIENCE_S_MAX: Final = 10.0

# Numbers converted to float64 at a time.
_CHUNK: Final = 1 << 18

_WHOLE: Final = Form()


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """The weighted average of the models of a swarm's live peers, ``sum w_i x_i / sum w_i``."""

    state: dict[str, Tensor]
    """A state dict, on the model's device. Values that peers do not average (frozen parameters,
    counters) are those of the local model."""
    weights: Mapping[str, float]
    """Averaging weight of each included peer when its model was read, in founders, by id; with
    shards, the mean over them."""
    missing: tuple[str, ...] = ()
    """Live peers that are not included, sorted: they did not answer in time, were silent, joining
    or leaving, or neither side can dial the other."""


class AverageEvaluator:
    """Measures the average every *every* steps, in a copy of the peer's model."""

    def __init__(self, model: nn.Module, evaluate: Evaluate, every: int) -> None:
        if every < 1:
            raise ConfigError(f"evaluate_every is {every}: it must be at least 1")
        self._model = model
        self._copy: nn.Module | None = None
        self._evaluate = evaluate
        self._every = every
        self._patience_s = _PATIENCE_S_MAX

    def is_due(self, step: int, stats: Callable[[], PeerStats]) -> bool:
        """True if this peer must measure after this step: it is the first live one by id."""
        return step % self._every == 0 and (now := stats()).id == min(now.members)

    def measure(self, step: int, read: Callable[[float], Average]) -> AverageEvaluation:
        """Read the average after a step and measure it.

        **read* takes the seconds to wait for each peer: at most a few times the last reading of all
        peers, so that a peer that has just died does not delay training until its death is known.
        """
        began_s = time.perf_counter()
        found = read(self._patience_s)
        reading_s = time.perf_counter() - began_s
        self._patience_s = min(_PATIENCE_S_MAX, max(_PATIENCE_S_MIN, _PATIENCE * reading_s))
        if self._copy is None:
            self._copy = deepcopy(self._model)
        self._copy.load_state_dict(found.state)
        return AverageEvaluation(
            step=step,
            evaluation=evaluation_of(**self._evaluate(self._copy)),
            peers=len(found.weights),
            missing=found.missing,
            wall_s=time.perf_counter() - began_s,
        )


def evaluation_of(*, accuracy: float | None = None, loss: float | None = None) -> Evaluation:
    """Return an evaluation of which a part may be unknown."""
    return Evaluation(
        loss=math.nan if loss is None else float(loss),
        accuracy=None if accuracy is None else float(accuracy),
    )


def average(
    runtime: PeerRuntime,
    vector: Vector,
    timeout_s: float,
    stop: threading.Event,
) -> Average:
    """Read the models of all live peers, one at a time, and average them.

    Waits up to *timeout_s* seconds for each, and no longer once *stop* is set.

    Raises:
        TrainingError, TransportError: As for `PeerRuntime.call`.
    """
    # The caller need not be the training thread: reads from a device are ordered by this thread's
    # streams.
    vector.follow()
    total = _WeightedSum(vector)
    me, members = runtime.look(lambda protocol: (protocol.account.id, protocol.table.live()))
    missing = []
    try:
        for member in members:
            if member.id == me:
                total.add_own(runtime.look(_held))
            elif not _added(total, runtime, member.id, timeout_s, stop):
                missing.append(member.id)
    finally:
        runtime.call("read", peer="")
    return Average(
        state=vector.layout.state_dict(total.mean()),
        weights={id: founders(sum(held)) / len(held) for id, held in total.held.items()},
        missing=tuple(missing),
    )


def _held(protocol: Protocol) -> tuple[str, list[int]]:
    return protocol.account.id, [account.weight for account in protocol.accounts]


def _added(
    total: "_WeightedSum",
    runtime: PeerRuntime,
    peer: str,
    timeout_s: float,
    stop: threading.Event,
) -> bool:
    """Read one peer's model; return True if it arrived."""
    give_up_s, again_s = time.monotonic() + timeout_s, float("-inf")
    while True:
        now = time.monotonic()
        shown, asking, is_there = runtime.look(
            lambda protocol: (
                protocol.reading.shown(),
                bool(protocol.reading.asking),
                protocol.reading.may_show(peer),
            )
        )
        if shown and shown[0][0].sender == peer:
            return total.add(runtime, peer, dict(shown))
        if now >= give_up_s or stop.is_set() or not is_there:
            return False
        # Other peers that read wait for this peer's step, which comes only after this.
        if asking or now >= again_s:
            runtime.call("read", peer=peer)
            again_s = now + _AGAIN_S
        runtime.wait_for_share(min(_AGAIN_S, give_up_s - now))


class _WeightedSum:
    """Sums of weight times model, float64, laid out like the peer's own vector, and the weights."""

    def __init__(self, vector: Vector) -> None:
        self.held: dict[str, list[int]] = {}
        """Weight of each shard at each peer."""
        self._vector = vector
        self._sums = tuple(torch.zeros_like(f, dtype=torch.float64) for f in vector.flats)

    def add_own(self, held: tuple[str, list[int]]) -> None:
        """Add the peer's own model, with its weights."""
        id, weights = held
        self.held[id] = weights
        for shard, weight in enumerate(weights):
            for part in self._vector.plan(_WHOLE, shard).registers[0]:
                self._add(part, part.of(self._vector.flats), weight)

    def add(self, runtime: PeerRuntime, peer: str, shown: Mapping[ShareId, int]) -> bool:
        """Add a model that was received, and release it; return True if all of it was still
        there."""
        taken = {share: runtime.store.pop(share) for share in shown}
        if None in taken.values():
            return False
        weights = [0] * len(shown)
        for share, staged in taken.items():
            assert staged is not None
            weights[share.shard] = weight = shown[share]
            read = self._vector.numbers_in(staged.payload, staged.form, share.shard)
            for values, _, part in read:
                self._add(part, values, weight)
        self.held[peer] = weights
        return True

    def _add(self, part: Part, values: Tensor, weight: int) -> None:
        sums = part.of(self._sums)
        for start in range(0, len(values), _CHUNK):
            chunk = values[start : start + _CHUNK].to(torch.float64)
            sums[start : start + _CHUNK] += chunk * (weight / UNIT)
        part.put(self._sums, sums)

    def mean(self) -> Flats:
        """Return the average in the model's dtypes; the peer's own values for a shard without
        weight."""
        for shard in range(self._vector.schema.shards):
            total = sum([held[shard] for held in self.held.values()]) / UNIT
            for part in self._vector.plan(_WHOLE, shard).registers[0]:
                sums = part.of(self._sums)
                sums = sums.div_(total) if total else sums.copy_(part.of(self._vector.flats))
                part.put(self._sums, sums)
        own = self._vector.flats
        return tuple(s.to(flat.dtype) for s, flat in zip(self._sums, own, strict=True))
