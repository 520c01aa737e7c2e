"""Segments that peers on one machine share: how peers find them, and recovery after a kill."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from rumor.gossip import TrainingError
from rumor.gossip.effects.effects import Exchange
from rumor.train.tensors import centers
from rumor.train.tensors.centers import Life, SharedCenters
from rumor.train.tensors.vector import Flats, Vector

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has segments")

# Random, since other runs of these tests on this machine must not find the same segments.
SWARM = os.urandom(16)

SEASGD = Exchange("x", "center", 0.2, 0.2, SWARM)
READ = Exchange("x", "center", 1.0, 0.0, SWARM)


class Mark(NamedTuple):
    """An exchange: the segment, its number there, and whether the one before was completed."""

    token: bytes
    number: int
    whole: bool


class Noted(Vector):
    """A vector that records its exchanges."""

    peer: "Peer"

    def exchange(self, register: str, shared: Flats, *, taken: float, given: float) -> None:
        held = self.peer.centers._held[self.peer.key]
        begun, done = held.counts[:2].tolist()
        self.peer.marks.append(Mark(held.token, begun, begun == done + 1))
        super().exchange(register, shared, taken=taken, given=given)


class Peer:
    """A peer that holds segments and records the marks of its exchanges."""

    def __init__(self, number: int, *known: int, dtype: torch.dtype = torch.float64) -> None:
        module = nn.Linear(50, 3).to(dtype)
        self.vector = Noted(module)
        self.vector.peer = self
        self.vector.flats[0].copy_(torch.randn(self.vector.flats[0].numel()).to(dtype))
        self.marks: list[Mark] = []
        self.known: list[Life] = [(f"p{other}", 7) for other in known]
        self.centers = SharedCenters((f"p{number}", 7), lambda: self.known)

    @property
    def x(self) -> torch.Tensor:
        return self.vector.flats[0]

    def exchange(self, effect: Exchange = SEASGD) -> None:
        self.key = effect.swarm, effect.segment
        self.centers.exchange(effect, self.vector)

    def center(self) -> torch.Tensor:
        """The numbers in the segment."""
        kept = self.x.clone()
        self.exchange(READ)
        found = self.x.clone()
        self.x.copy_(kept)
        return found


@pytest.fixture(autouse=True)
def repeatable() -> None:
    torch.manual_seed(0)


def close(*peers: Peer) -> None:
    for peer in peers:
        peer.centers.close()


def test_exchanges_follow_the_paper() -> None:
    one, two = Peer(1, 2), Peer(2, 1)
    x, y = one.x.numpy().copy(), two.x.numpy().copy()
    center = x.copy()
    for _ in range(30):
        for peer, mine in ((one, x), (two, y)):
            peer.exchange()
            pull = 0.2 * (mine - center)
            mine -= pull
            center += pull
    np.testing.assert_allclose(one.x, x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(two.x, y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.center(), center, rtol=0, atol=1e-12)
    assert torch.equal(one.center(), two.center())
    numbers = [mark.number for mark in one.marks + two.marks]
    assert sorted(numbers) == list(range(1, 64)) and all(mark.whole for mark in one.marks)
    assert {mark.token for mark in one.marks + two.marks} == {one.marks[0].token}
    close(one, two)


def test_concurrent_exchanges_preserve_the_sum() -> None:
    """The center takes what a peer gives, so the sum of all stays the same in any order."""
    peers = [Peer(n, *(o for o in range(4) if o != n)) for n in range(4)]
    # The first peer creates the center as a copy of its own model.
    total = sum(peer.x.clone() for peer in peers) + peers[0].x
    peers[0].exchange()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda peer: [peer.exchange() for _ in range(10)], peers))
    found = sum(peer.x for peer in peers) + peers[0].center()
    torch.testing.assert_close(found, total, rtol=0, atol=1e-12)
    numbers = [mark.number for peer in peers for mark in peer.marks]
    assert sorted(numbers) == list(range(1, 43))
    close(*peers)


def test_only_peers_of_one_swarm_and_size_share_a_segment() -> None:
    """Another run of the same task has the same anchor, and perhaps the same names."""
    one, stranger, friend, small = Peer(1), Peer(2), Peer(3, 1), Peer(4, 1)
    small.vector = Noted(nn.Linear(4, 4).to(torch.float64))
    small.vector.peer = small
    for peer in (one, stranger, friend, small):
        peer.exchange()
    first, *tokens = (peer.marks[0].token for peer in (one, stranger, friend, small))
    assert [token == first for token in tokens] == [False, True, False]
    friend.exchange(Exchange("x", "center", 0.2, 0.2, b"another anchor!!"))
    assert friend.marks[-1].token != first and friend.marks[-1].number == 1
    close(one, stranger, friend, small)


def test_a_segment_exists_until_its_last_holder_closes() -> None:
    one, two = Peer(1, 2), Peer(2, 1)
    one.exchange()
    two.exchange()
    center = two.center()
    close(one)
    back = Peer(1, 2)
    assert torch.equal(back.center(), center)
    close(back, two)
    late = Peer(3, 1, 2)
    late.exchange()
    assert late.marks[0].number == 1 and torch.equal(late.center(), late.x)
    close(late)


def test_the_older_of_two_segments_stays_once_their_holders_meet() -> None:
    one, two = Peer(1), Peer(2)
    one.exchange()
    two.exchange()
    center = one.center()
    for peer, other in ((one, 2), (two, 1)):
        peer.known.append((f"p{other}", 7))
    assert torch.equal(two.center(), center) and torch.equal(one.center(), center)
    assert two.marks[-1].token == one.marks[-1].token == one.marks[0].token
    one.exchange()
    assert one.marks[-1].token == one.marks[0].token
    close(one, two)


def test_non_finite_numbers_are_refused() -> None:
    one, two = Peer(1, 2), Peer(2, 1)
    one.exchange()
    center = one.center()
    two.x[7] = float("nan")
    before = two.x.clone()
    with pytest.raises(TrainingError, match="not finite"):
        two.exchange()
    assert torch.equal(one.center(), center)
    assert torch.equal(two.x.view(torch.int64), before.view(torch.int64))
    one.exchange()
    assert all(mark.whole for mark in one.marks)
    close(one, two)


def test_small_moves_of_16_bit_numbers_add_up() -> None:
    one, two = Peer(1, 2, dtype=torch.bfloat16), Peer(2, 1, dtype=torch.bfloat16)
    one.x.fill_(1.0)
    two.x.fill_(2.0)
    one.exchange()
    for _ in range(100):
        # A thousandth of the way: less than bfloat16 can add to 1.
        two.exchange(Exchange("x", "center", 0.0, 0.001, SWARM))
    assert 1.09 < float(one.center()[0]) < 1.1
    close(one, two)


KILLED = f"""
import os, signal, torch
from torch import nn
from rumor.gossip.effects.effects import Exchange
from rumor.train.tensors.centers import SharedCenters
from rumor.train.tensors.vector import Vector

class Killed(Vector):
    def exchange(self, register, shared, *, taken, given):
        shared[0][:10] = 5.0
        os.kill(os.getpid(), signal.SIGKILL)

vector = Killed(nn.Linear(50, 3).to(torch.float64))
segments = SharedCenters(("p1", 7), lambda: [("p0", 7)])
segments.exchange(Exchange("x", "center", 0.2, 0.2, {SWARM!r}), vector)
"""


@pytest.mark.extended
@pytest.mark.live
def test_a_peer_killed_during_an_exchange_does_not_block_others() -> None:
    peer = Peer(0, 1)
    peer.exchange()
    center = peer.center()
    ended = subprocess.run([sys.executable, "-P", "-c", KILLED], check=False)
    assert ended.returncode == -signal.SIGKILL
    peer.exchange()
    # The part that was exchanged before the kill stays, and a mark reports it.
    assert [mark.whole for mark in peer.marks] == [True, True, False]
    assert [mark.number for mark in peer.marks] == [1, 2, 4]
    found = peer.center()
    assert not torch.equal(found[:10], center[:10]) and torch.equal(found[10:], center[10:])
    assert peer.marks[-1].whole
    assert not [path for path in Path("/dev/shm").iterdir() if "rumor" in path.name]
    close(peer)


@pytest.fixture
def stalled_opener() -> Iterator[None]:
    """A peer that stalls while it opens the segment."""
    name = blake2b(b"center", key=SWARM, digest_size=16).hexdigest()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"\0rumor-{os.geteuid()}-{name}")
        yield


@pytest.mark.usefixtures("stalled_opener")
def test_waiting_for_a_peer_that_stalls_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(centers, "_OPENING_S", 0.05)
    peer = Peer(0)
    began_s = time.monotonic()
    with pytest.raises(TrainingError, match="has been opening the center center"):
        peer.exchange()
    assert time.monotonic() - began_s >= 0.05
    close(peer)


def test_the_error_without_segments_suggests_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(TrainingError, match="Linux can: use a rule whose peers gossip"):
        SharedCenters(("p0", 7), list)
