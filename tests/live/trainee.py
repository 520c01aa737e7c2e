"""A peer in a separate process whose optimizer steps sleep; its settings are a JSON argument.

After each step the peer appends a row to ``steps.jsonl`` in its folder. With SIGTERM it leaves;
with SIGINT it ends at once, between two steps.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from rumor.gossip import GoSGD, ProtocolConfig
from rumor.gossip.config import timing
from rumor.gossip.exchange.flow_control import messages_max
from rumor.gossip.transport.zmq_transport import Transport
from rumor.gossip.types import PeerId
from rumor.gossip.wire.codec import Buffer
from rumor.train import CheckpointConfig, Peer, PeerConfig
from rumor.train.storage.jsonl import MetricsLog
from rumor.train.tensors.buffers import keep_pages

__all__ = ["train"]


class _Relayed(Transport):
    """A transport that dials relays in place of peers."""

    def __init__(self, config: PeerConfig, relays: Mapping[str, str]) -> None:
        super().__init__(config.bind, bulk_messages_max=messages_max(config.shards))
        self._relays = relays

    def meet(self, peer: PeerId, addresses: Sequence[str]) -> None:
        super().meet(peer, [self._relays.get(each, each) for each in addresses])

    def greet(self, address: str, parts: Sequence[Buffer]) -> bool:
        return super().greet(self._relays.get(address, address), parts)

    def dismiss(self, address: str) -> None:
        super().dismiss(self._relays.get(address, address))


def train(
    *,
    out: str,
    size_bytes: int,
    step_s: float,
    p: float = 0.1,
    preset: str = "local",
    relays: Mapping[str, str] = MappingProxyType({}),
    **changes: Any,
) -> None:
    """Train until a signal arrives.

    Args:
        out: Folder of the peer.
        size_bytes: Size of its float32 model.
        step_s: Duration of an optimizer step, which sleeps.
        p: Push probability of its rule.
        preset: Preset of its timeouts.
        relays: Relay to dial in place of each address.
        changes: Other fields of PeerConfig.
    """
    protocol = ProtocolConfig(**({"shared_memory": False} | timing(preset)))
    settings: dict[str, Any] = {"topology": "complete", "linger_s": 0, "leave_s": 10.0, **changes}
    # With a checkpoint of an earlier incarnation, the next one would have to resume it.
    settings["checkpoint"] = CheckpointConfig(folder=Path(out) / "checkpoints", every="never")
    config = PeerConfig(out=Path(out), rule=GoSGD(p), protocol=protocol, **settings)
    stop, abandon = threading.Event(), threading.Event()
    signal.signal(signal.SIGINT, lambda number, frame: abandon.set())
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    Path(out).mkdir(parents=True, exist_ok=True)
    flat = nn.Parameter(torch.ones(size_bytes // 4))
    peer = Peer(nn.ParameterList([flat]), config)
    peer._stop = stop
    peer._opens = lambda config: _Relayed(config, relays)
    log = MetricsLog(Path(out) / "steps.jsonl")
    with peer:
        log.write(_row(peer, time.monotonic(), 0.0, 0.0))
        while not stop.is_set():
            began_s = time.monotonic()
            with torch.no_grad():
                flat[:1000].add_(0.001)
            time.sleep(step_s)
            slept_s, slept_cpu_s = time.monotonic(), time.thread_time()
            peer.step()
            log.write(
                _row(peer, began_s, time.monotonic() - slept_s, time.thread_time() - slept_cpu_s)
            )
            if abandon.is_set():
                os._exit(0)
        peer.leave()
    log.close()


def _row(peer: Peer, began_s: float, gossip_s: float, cpu_s: float) -> dict[str, Any]:
    """Return the record of one step: its times, its gossip, and the counters of the peer."""
    return {
        "began_s": began_s,
        "ended_s": time.monotonic(),
        "gossip_s": gossip_s,
        "gossip_cpu_s": cpu_s,
        "live": list(peer.members),
        "mixed": peer.stats().counters.mixed,
        "pushes": peer.stats().counters.pushes,
        "address": peer.address,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_pages(messages=True)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d %(message)s",
        datefmt="%H:%M:%S",
    )
    train(**json.loads(sys.argv[1]))
