"""What a peer that was closed leaves in memory: nothing, without waiting for a collection."""

import gc
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rumor.gossip import GoSGD, TrainingError, TransportError
from rumor.gossip.transport.zmq_transport import Received
from rumor.train import Peer

from ...waiting import turning, until
from ..loggers.fakes import Collected
from ..members import settings

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
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:rumor")
    return found


def peer_of(id: str, **given: Any) -> Peer:
    changes = {"rule": GoSGD(p=1.0), "leave_s": 0.2, **given.pop("changes", {})}
    return Peer(nn.Linear(100, ROWS), settings(id, **changes), **given)


def together(*, shared_memory: bool) -> list[weakref.ref[Any]]:
    """Two lives, of which each pushes to the other and mixes what it gets."""
    given: dict[str, Any] = {"times": {"shared_memory": shared_memory}, "topology": "complete"}
    with peer_of("a", changes=given) as founder:
        joining = peer_of("b", changes={"join": (founder.address or "",), **given})
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


def alone(out: Path, how: str) -> list[weakref.ref[Any]]:
    """A life without neighbors."""
    given: dict[str, Any] = {} if how == "bare" else {"out": out}
    if how == "measured":
        given |= {"changes": {"metrics_port": 0, "loggers": (Collected(),)}}
        given |= {"evaluate": lambda _: {"loss": 1.0}, "evaluate_every": 1}
    peer = peer_of("solo", **given)
    if how == "journaled":
        peer._journaled = {}
    those: list[weakref.ref[Any]] = []
    with suppress(TrainingError, TransportError), peer:
        for _ in range(3):
            peer.step(loss=1.0)
        assert (peer._running().journal is not None) is (how == "journaled")
        those += referred(peer)
        if how in FAILS:
            FAILS[how](peer)
            raise AssertionError("it did not fail")
    return those


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


FAILS: dict[str, Callable[[Peer], None]] = {
    "diverges": diverges,
    "loses its network": loses_its_network,
}


@pytest.mark.extended
@pytest.mark.parametrize("how", ["bare", "with a folder", "journaled", "measured", *FAILS])
def test_a_peer_leaves_nothing(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    # pytest keeps all records of the log, and that of a failure has the frames of the call.
    caplog.set_level(logging.CRITICAL + 1, "rumor")
    assert left(alone(tmp_path, how)) == []
