"""A closed peer leaves nothing in memory, even without garbage collection."""

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

# 1.2 MB: too large for one message, so a share is offered first.
ROWS = 3000


@pytest.fixture(autouse=True)
def _without_gc() -> Iterator[None]:
    """Disable garbage collection, so that reference cycles are not freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def references_to(peer: Peer) -> list[weakref.ref[Any]]:
    """References to the large objects of a peer, and to their owners."""
    runtime = peer._running()
    vector, store = peer._vector, runtime.store
    objects = (peer, runtime, runtime.desk, store, vector, vector.memory)
    return [weakref.ref(each) for each in objects]


def alive(references: list[weakref.ref[Any]]) -> list[object]:
    return [type(found).__name__ for each in references if (found := each()) is not None]


def open_segments() -> int:
    """Anonymous files of this process."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:rumor")
    return found


def peer_of(id: str, **options: Any) -> Peer:
    changes = {"rule": GoSGD(p=1.0), "leave_s": 0.2, **options.pop("changes", {})}
    return Peer(nn.Linear(100, ROWS), settings(id, **changes), **options)


def run_two(*, shared_memory: bool) -> list[weakref.ref[Any]]:
    """Run two peers until each has mixed a share of the other."""
    options: dict[str, Any] = {"times": {"shared_memory": shared_memory}, "topology": "complete"}
    with peer_of("a", changes=options) as founder:
        joining = peer_of("b", changes={"join": (founder.address or "",), **options})
        with ExitStack() as block:
            with turning(founder.step):
                block.enter_context(joining)

            def have_exchanged() -> bool:
                founder.step()
                joining.step()
                return bool(founder.stats().counters.mixed and joining.stats().counters.mixed > 1)

            until(have_exchanged)
            return references_to(founder) + references_to(joining)


@pytest.mark.extended
@pytest.mark.parametrize("shared_memory", [True, False])
def test_peers_that_exchanged_shares_leave_nothing_in_memory(shared_memory: bool) -> None:
    before = open_segments()
    assert alive(run_two(shared_memory=shared_memory)) == []
    assert open_segments() == before


def run_one(out: Path, how: str) -> list[weakref.ref[Any]]:
    """Run one peer without neighbors."""
    options: dict[str, Any] = {} if how == "bare" else {"out": out}
    if how == "measured":
        options |= {"changes": {"metrics_port": 0, "loggers": (Collected(),)}}
        options |= {"evaluate": lambda _: {"loss": 1.0}, "evaluate_every": 1}
    peer = peer_of("solo", **options)
    if how == "journaled":
        peer._journaled = {}
    references: list[weakref.ref[Any]] = []
    with suppress(TrainingError, TransportError), peer:
        for _ in range(3):
            peer.step(loss=1.0)
        assert (peer._running().journal is not None) is (how == "journaled")
        references += references_to(peer)
        if how in FAILURES:
            FAILURES[how](peer)
            raise AssertionError("it did not fail")
    return references


def diverge(peer: Peer) -> None:
    with torch.no_grad():
        peer._vector.flats[0].fill_(float("nan"))
    peer.merge()


def lose_network(peer: Peer) -> None:
    runtime = peer._running()

    def poll(timeout_s: float) -> Iterator[Received]:
        raise OSError("the network is gone")

    runtime.transport.poll = poll  # type: ignore[method-assign]
    while runtime.is_sound:
        time.sleep(0.01)
    peer.step()


FAILURES: dict[str, Callable[[Peer], None]] = {
    "diverges": diverge,
    "loses its network": lose_network,
}


@pytest.mark.extended
@pytest.mark.parametrize("how", ["bare", "with a folder", "journaled", "measured", *FAILURES])
def test_a_closed_peer_leaves_nothing_in_memory(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    # pytest keeps all log records, and the record of a failure holds the frames of the call.
    caplog.set_level(logging.CRITICAL + 1, "rumor")
    assert alive(run_one(tmp_path, how)) == []
