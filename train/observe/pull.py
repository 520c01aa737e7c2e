"""Read the weighted average of a swarm's models from outside, without joining it.

Each peer's model is read in turn, as it is between two of its steps. No weight moves: what one peer
has pushed meanwhile may count twice, or not at all, as for `Peer.average`.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ...gossip import RumorError, TransportError
from ...gossip.errors import RemoteProtocolError
from ...gossip.transport.keys.keyring import read_keyring
from ...gossip.types import PeerId
from ...gossip.weight import founders
from ...gossip.wire.codec import Buffer
from ...gossip.wire.messages import Envelope, Excerpt, Fetch
from ...gossip.wire.schema import Schema
from ..runtime.telling.model_copy import ModelRead, read_model
from ..storage.merge import digest, save_model
from ..tensors.layout import EXTRA_STATE
from ..tensors.weighted_sum import WeightedSum
from .observer import Observer
from .probe import Probe
from .view import PeerView

__all__ = ["PeerRead", "Pulled", "pull", "pull_once"]

_GIB: Final = 1 << 30

_POLLS: Final = 3
_BETWEEN_POLLS_S: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRead:
    """A peer whose model is in an average."""

    id: PeerId
    weight: float
    """Averaging weight when it was read, in founders; with shards, the mean over them."""
    step: int
    """Optimizer steps behind its model."""
    time_s: float
    """Time at which reading began, seconds since the epoch; the model is of about then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """The weighted average of the models of a swarm's live peers, ``sum w_i x_i / sum w_i``."""

    state: dict[str, Tensor]
    """Tensors that peers train or send, by plain name, on the CPU. Those not averaged, such as
    counters, are those of the peer with the most weight."""
    swarm: str
    """Hash of the swarm's first model, as 32 hexadecimal digits."""
    peers: tuple[PeerRead, ...]
    """Peers that were read, in this order."""
    missing: Mapping[PeerId, str]
    """Live peers that could not be read, with the reason for each."""
    frozen: tuple[str, ...] = ()
    """Names of frozen parameters, which peers compare and never send."""

    def save(self, path: Path) -> None:
        """Write the model as safetensors, replacing an earlier file atomically.

        Raises:
            OSError: Writing failed; the earlier file is kept.
        """
        last = datetime.fromtimestamp(max(peer.time_s for peer in self.peers), UTC)
        metadata = {
            "pulled_from": ",".join(f"{each.id}:{each.weight:g}" for each in self.peers),
            "pulled_at": last.isoformat(timespec="seconds"),
            "swarm": self.swarm,
            "digest": digest(self.state),
        }
        save_model(path, self.state, metadata)


def pull(
    address: str | Sequence[str],
    *,
    key: Path | None = None,
    roster: Path | None = None,
    timeout_s: float = 60.0,
    progress: Callable[[float, str], None] | None = None,
) -> Pulled:
    """Read the average of a running swarm from outside, without joining it.

    Args:
        address: ``host:port`` of any member, or of several, in case that the first does not answer.
        key: This machine's key, if the swarm has keys; with *roster*, which must list it.
        timeout_s: Timeout for a peer's next step boundary, and for more of its model, seconds.
        progress: Called with the part of all models that was read, in [0, 1], and where it is.

    Raises:
        ConfigError: The address is malformed, or a key cannot be read.
        TransportError: No member answers, or no model can be read; the message says why.
    """
    with Observer(address, keyring=read_keyring(key, roster)) as observer:
        return pull_once(observer, timeout_s, progress or (lambda done, line: None))


def pull_once(
    observer: Observer, timeout_s: float, progress: Callable[[float, str], None]
) -> Pulled:
    """Read the average of the swarm that *observer* watches; see `pull`."""
    # The second poll asks a peer that has moved at its new address, and the third gets the answer.
    for _ in range(_POLLS):
        view = observer.poll()
        live = [peer for peer in view.peers if not peer.is_gone] if view.answered else []
        if view.answered >= sum(bool(peer.address) for peer in live):
            break
        time.sleep(_BETWEEN_POLLS_S)
    total: WeightedSum | None = None
    read: list[PeerRead] = []
    missing: dict[PeerId, str] = {}
    most, local = 0, torch.empty(0, dtype=torch.uint8, device="cpu")
    for number, peer in enumerate(live):

        def tell(part: float, number: int = number, id: PeerId = peer.id) -> None:
            progress((number + part) / len(live), f"{id}, {number + 1} of {len(live)} peers")

        tell(0.0)
        try:
            with _reachable(observer, peer) as probe:
                schema = probe.schema() if total is None else total.schema
                model = _read(probe, peer.id, view.swarm, schema, timeout_s, tell)
        except RumorError as error:
            missing[peer.id] = str(error)
            continue
        total = total or WeightedSum(schema)
        total.add(model.payloads, model.weights)
        mean = founders(sum(model.weights)) / schema.shards
        read.append(PeerRead(id=peer.id, weight=mean, step=model.step, time_s=model.time_s))
        if sum(model.weights) > most:
            most, first = sum(model.weights), model.payloads[0]
            local = first[len(first) - schema.copy_bytes + schema.share_bytes :].clone()
    if total is None:
        why = "; ".join(f"{id}: {why}" for id, why in missing.items())
        raise TransportError(f"no peer's model can be read: {why or 'no member answers any more'}")
    return Pulled(
        state=_state(total, local),
        swarm=view.swarm,
        peers=tuple(read),
        missing=missing,
        frozen=tuple(each.name for each in total.schema.frozen),
    )


def _reachable(observer: Observer, peer: PeerView) -> Probe:
    """Return a probe of a peer that may show its model."""
    if peer.state in ("seeking", "joining", "leaving"):
        raise TransportError(f"it is {peer.state}")
    if not peer.address:
        raise TransportError("it only dials out, so that no reader can reach it")
    return observer.probe(peer)


def _read(
    probe: Probe,
    id: PeerId,
    swarm: str,
    schema: Schema,
    wait_s: float,
    tell: Callable[[float], None],
) -> ModelRead:
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # The peer's bytes, sums in float64, and the result; the peer may claim any size.
    if (needed := 4 * schema.copy_bytes) > here:
        raise RemoteProtocolError(
            f"averaging its model takes {needed / _GIB:.3g} GiB of memory, and this machine "
            f"has {here / _GIB:.3g} GiB"
        )

    def ask(fetch: Fetch, shard: int, until_s: float) -> Iterator[tuple[Envelope, Excerpt, Buffer]]:
        probe.send(fetch, shard=shard)
        return probe.answers(Excerpt, until_s)

    return read_model(ask, id, bytes.fromhex(swarm), schema, wait_s, tell)


def _state(total: WeightedSum, local: Tensor) -> dict[str, Tensor]:
    """Return the average, and the *local* tensors of one peer, as a state dict."""
    schema = total.schema
    whole = torch.empty(schema.copy_bytes, dtype=torch.uint8, device="cpu")
    total.write_mean(whole[: schema.share_bytes])
    whole[schema.share_bytes :] = local
    state, offset = dict[str, Tensor](), 0
    for spec in schema.tensors:
        raw = whole[offset : offset + spec.size_bytes].view(getattr(torch, spec.dtype))
        offset += spec.room_bytes
        value = raw.view([spec.shape[axis] for axis in spec.axes]).permute(
            np.argsort(spec.axes).tolist()
        )
        for name in (spec.name, *spec.aliases) if spec.name != EXTRA_STATE else ():
            state[name] = value.clone(memory_format=torch.contiguous_format)
    return state
