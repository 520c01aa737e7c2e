"""What a peer that was closed leaves in memory: nothing, without waiting for a collection."""

import gc
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import GoSGD, ProtocolConfig, TrainingError, TransportError
from rumor.gossip.transport.zmq_transport import Received
from rumor.train import Peer, PeerConfig

from ...waiting import turning, until
from ..loggers.fakes import Collected

pytestmark = pytest.mark.live

# 1.2 MB: offered, and not sent in one message.
ROWS = 3000


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    """Only what nothing refers to is gone: no cycle is ever found."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def config(id: str, *, shared_memory: bool = True, **changes: object) -> PeerConfig:
    quick = ProtocolConfig(gossip_s=0.1, seek_s=0.05, shared_memory=shared_memory)
    given = {"id": id, "protocol": quick, "rule": GoSGD(p=1.0), "linger_s": 0, "leave_s": 0.2}
    return PeerConfig(**{**given, **changes})  # type: ignore[arg-type]


def referred(peer: Peer) -> list[weakref.ref[Any]]:
    """What is large of a peer, and what holds it."""
    runtime = peer._running()
    vector, store = peer._vector, runtime.store
    held = (peer, runtime, runtime._desk, store, vector, vector.memory)
    return [weakref.ref(each) for each in held]


def left(those: list[weakref.ref[Any]]) -> list[object]:
    return [type(found).__name__ for each in those if (found := each()) is not None]


def open_segments() -> int:
    """Anonymous files of this process."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:rumor")
        except OSError:
            continue
    return found


def alone(
    settings: Mapping[str, Any] = MappingProxyType({}), **given: Any
) -> list[weakref.ref[Any]]:
    """A life without neighbors."""
    with Peer(nn.Linear(100, ROWS), config("solo", **settings), **given) as peer:
        for _ in range(3):
            peer.step(loss=1.0)
        return referred(peer)


def journaled(out: Path) -> list[weakref.ref[Any]]:
    peer = Peer(nn.Linear(100, ROWS), config("solo"), out=out)
    peer._journaled = {}
    with peer:
        peer.step()
        assert peer._running().journal is not None
        return referred(peer)


def failed(raises: Callable[[Peer], None]) -> list[weakref.ref[Any]]:
    """A life that ends with an error; nothing of it is kept but what is returned."""
    those: list[weakref.ref[Any]] = []
    try:
        with Peer(nn.Linear(100, ROWS), config("solo")) as peer:
            peer.step()
            those += referred(peer)
            raises(peer)
    except (TrainingError, TransportError):
        return those
    raise AssertionError("it did not fail")


def diverges(peer: Peer) -> None:
    with torch.no_grad():
        peer._vector.flats[0].fill_(float("nan"))
    peer.merge()


def loses_its_network(peer: Peer) -> None:
    runtime = peer._running()

    def poll(timeout_s: float) -> Iterator[Received]:
        raise OSError("the network is gone")

    runtime.transport.poll = poll  # type: ignore[method-assign]
    while runtime.is_sound:
        time.sleep(0.01)
    peer.step()


def cannot_write(peer: Peer) -> None:
    raise TrainingError("a loss is not finite")


def together(*, shared_memory: bool) -> list[weakref.ref[Any]]:
    """Two lives, of which each pushes to the other and mixes what it gets."""
    settings: dict[str, Any] = {"shared_memory": shared_memory, "topology": "complete"}
    founder = Peer(nn.Linear(100, ROWS), config("a", **settings))
    with founder:
        address = founder.address
        assert address is not None
        joining = Peer(nn.Linear(100, ROWS), config("b", join=(address,), **settings))
        with ExitStack() as block:
            with turning(founder.step):
                block.enter_context(joining)

            def have_exchanged() -> bool:
                founder.step()
                joining.step()
                return bool(founder.stats().counters.mixed and joining.stats().counters.mixed > 1)

            until(have_exchanged)
            return referred(founder) + referred(joining)


@pytest.mark.extended
@pytest.mark.parametrize("shared_memory", [True, False])
def test_peers_that_have_exchanged_leave_nothing(shared_memory: bool) -> None:
    before = open_segments()
    assert left(together(shared_memory=shared_memory)) == []
    assert open_segments() == before


def test_a_peer_leaves_nothing(tmp_path: Path) -> None:
    assert left(alone()) == []
    assert left(alone(out=tmp_path / "out")) == []
    assert left(journaled(tmp_path / "journaled")) == []


@pytest.mark.extended
def test_a_peer_that_was_measured_leaves_nothing(tmp_path: Path) -> None:
    rows = Collected()
    measured = {"metrics_port": 0, "loggers": (rows,)}
    evaluates = {"evaluate": lambda _: {"loss": 1.0}, "evaluate_every": 1}
    assert left(alone(measured, out=tmp_path, **evaluates)) == []


@pytest.mark.extended
@pytest.mark.parametrize("raises", [diverges, loses_its_network, cannot_write])
def test_a_peer_that_failed_leaves_nothing(
    raises: Callable[[Peer], None], caplog: pytest.LogCaptureFixture
) -> None:
    # pytest keeps all records of the log, and that of a failure has the frames of the call.
    caplog.set_level(logging.CRITICAL + 1, "rumor")
    assert left(failed(raises)) == []
