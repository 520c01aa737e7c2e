"""The average of all peers' models while they train, which reads each model but mixes none."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final

import torch
from torch import Tensor, nn

from ...gossip import ConfigError, TransportError
from ...gossip.errors import RemoteProtocolError
from ...gossip.protocol.protocol import Protocol
from ...gossip.types import PeerId
from ...gossip.weight import founders
from ...gossip.wire.codec import Buffer
from ...gossip.wire.messages import Envelope, Excerpt, Fetch, Member
from ..runtime.runner import PeerRuntime
from ..runtime.telling.model_copy import Ask, read_model
from ..runtime.telling.stats import PeerStats
from ..tasks.task import Evaluation
from ..tensors.vector import Vector
from ..tensors.weighted_sum import WeightedSum

__all__ = [
    "Average",
    "AverageEvaluator",
    "Evaluate",
    "average",
    "evaluation_of",
]

Evaluate = Callable[[nn.Module], Mapping[str, float]]
"""Measures a model on held-out data: ``accuracy``, ``loss`` or both, as `Peer.log` takes them."""

# Interval between two looks at whether a peer still can answer, and who reads this one.
_LOOK_S: Final = 0.05


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

    def is_due(self, step: int, stats: Callable[[], PeerStats]) -> bool:
        """True if this peer must measure after this step: it is the first live one by id."""
        return step % self._every == 0 and (now := stats()).id == min(now.members)

    def measure(self, found: Average) -> dict[str, Any]:
        """Measure an average; return its part of a row of metrics."""
        if self._copy is None:
            self._copy = deepcopy(self._model)
        self._copy.load_state_dict(found.state)
        evaluation = evaluation_of(**self._evaluate(self._copy))
        return {
            "average_accuracy": evaluation.accuracy,
            "average_test_loss": evaluation.loss,
            "average_peers": len(found.weights),
            "average_missing": list(found.missing),
        }


def evaluation_of(*, accuracy: float | None = None, loss: float | None = None) -> Evaluation:
    """Return an evaluation that may lack a part."""
    return Evaluation(
        loss=math.nan if loss is None else float(loss),
        accuracy=None if accuracy is None else float(accuracy),
    )


def average(
    runtime: PeerRuntime, vector: Vector, timeout_s: float, stop: threading.Event
) -> Average:
    """Read the models of all live peers, one at a time, and average them.

    Waits up to *timeout_s* for each answer, and no longer once *stop* is set. Raises as
    `PeerRuntime.require_sound` does.
    """
    # The caller need not be the training thread: reads from a device are ordered by this thread's
    # streams.
    vector.follow()
    schema, held = vector.schema, dict[str, list[int]]()
    total = WeightedSum(schema)
    own = torch.cat([flat.view(torch.uint8).cpu() for flat in vector.flats])
    me, swarm, members = runtime.look(
        lambda protocol: (protocol.account.id, protocol.swarm, protocol.table.live())
    )
    missing = []
    # A late answer to an earlier read names a copy that is gone.
    runtime.excerpts = SimpleQueue()
    try:
        for member in members:
            if member.id == me:
                held[me] = runtime.look(lambda p: [account.weight for account in p.accounts])
                total.add_vector(own, held[me])
                continue
            try:
                ask = _asker(runtime, member, stop)
                model = read_model(ask, member.id, swarm, schema, timeout_s)
            except (TransportError, RemoteProtocolError):
                runtime.require_sound()
                # Its copy, if it takes one after all, would be an old one at the next read.
                runtime.ask(member, Fetch(done=True), 0)
                missing.append(member.id)
                continue
            total.add(model.payloads, model.weights)
            held[member.id] = list(model.weights)
    finally:
        runtime.reads = ""
    total.write_mean(own)
    mean = [flat.to(vector.layout.device) for flat in total.flats(own)]
    return Average(
        state=vector.layout.state_dict(mean),
        weights={id: founders(sum(each)) / len(each) for id, each in held.items()},
        missing=tuple(missing),
    )


def _asker(runtime: PeerRuntime, member: Member, stop: threading.Event) -> Ask:
    """Return a function that asks a member for its model, until *stop* is set."""
    id = member.id

    def ask(fetch: Fetch, shard: int, until_s: float) -> Iterator[tuple[Envelope, Excerpt, Buffer]]:
        runtime.ask(member, fetch, shard)
        return answers(until_s)

    def answers(until_s: float) -> Iterator[tuple[Envelope, Excerpt, Buffer]]:
        while (rest_s := until_s - time.perf_counter()) > 0:
            if stop.is_set() or not runtime.look(lambda protocol: _may_answer(protocol, id)):
                raise TransportError(f"{id} cannot answer")
            # Other peers that read wait for this peer's step, which comes only after this.
            runtime.copy_for_reader()
            with suppress(Empty):
                found = runtime.excerpts.get(timeout=min(rest_s, _LOOK_S))
                if found[0].source == id:
                    yield found

    return ask


def _may_answer(protocol: Protocol, peer: PeerId) -> bool:
    member, is_heard = protocol.table.member(peer), protocol.table.reachable([peer], math.inf)
    return bool(is_heard) and member is not None and member.phase.takes_shares
