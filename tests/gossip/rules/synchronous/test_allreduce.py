"""All-reduce gives all peers the same mean, bit for bit, for any number of peers."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.rules.synchronous.allreduce import AllReduce
from rumor.gossip.types import PeerId
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import ring
from rumor.sim.fuzz.swarm import CALM

from ...crowd import BAD, CONFIG, LR, PATIENT, Crowd, gradient, starts


def crowd_of(n: int, weather: NetworkConfig = CALM, size: int = 1, **options: Any) -> Crowd:
    """Return *n* peers, *size* of them on each machine."""
    levels = options.pop("levels", 1)

    def host(peer: PeerId) -> bytes:
        return bytes([1 + int(peer[1:]) // size]) * 16

    return Crowd(lambda peer: AllReduce(levels=levels), n, ring, weather, host=host, **options)


ONE_LEVEL = [(n, 1, 1) for n in (1, 2, 3, 5, 8, 11)]
SLOW = [pytest.param(n, 1, 1, marks=pytest.mark.slow) for n in (4, 6, 7, 16)]
MACHINES = ((1, 1), (2, 2), (5, 2), (6, 1), (7, 4), (9, 3), (10, 7))
TWO_LEVELS = [pytest.param(n, size, 2, marks=pytest.mark.extended) for n, size in MACHINES]


@pytest.mark.parametrize(
    "weather", [pytest.param(CALM, marks=pytest.mark.extended), BAD], ids=["calm", "bad"]
)
@pytest.mark.parametrize(("n", "size", "levels"), [*ONE_LEVEL, *SLOW, *TWO_LEVELS])
def test_every_round_ends_with_a_bitwise_equal_mean(
    n: int, size: int, levels: int, weather: NetworkConfig
) -> None:
    x = starts(n)
    for after in crowd_of(n, weather, size, levels=levels).history(6 if levels == 1 else 4):
        assert (after == after[0]).all()
        stepped = [row - LR * gradient(index, row) for index, row in enumerate(x)]
        x = np.mean(stepped, axis=0)[None].repeat(n, 0)
        np.testing.assert_allclose(after, x, rtol=0, atol=1e-12)


@pytest.mark.extended
@pytest.mark.parametrize(("n", "pushes"), [(2, 2), (4, 8), (8, 24), (5, 10), (7, 14)])
def test_a_round_takes_n_log_n_whole_vectors(n: int, pushes: int) -> None:
    """The inner 2^k peers swap k times; the others send one vector and receive one."""
    crowd = crowd_of(n, steps=10, config=PATIENT)
    crowd.run(200.0)
    seqs = sum(last for host in crowd.hosts for last, _ in host.ledger.decided.values())
    assert seqs == 10 * pushes


def test_a_peer_that_dies_before_the_last_mean_blocks_no_other_peer() -> None:
    """The third of three peers only receives the mean, so no other peer waits for it."""
    crowd = crowd_of(3, steps=4, config=replace(CONFIG, dead_s=3.0))
    crowd.swarm.run(100.0, lambda: crowd.swarm.peers["p00"].worker.finished)
    crowd.crash("p02")
    crowd.run(crowd.swarm.now + 60.0)
    assert not crowd.swarm.running()


@pytest.mark.parametrize(("levels", "between", "within"), [(1, 16, 16), (2, 4, 18)])
def test_only_leaders_send_messages_between_machines(
    levels: int, between: int, within: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 peers on 3 machines: with one level, 8 are inner peers; with two, 2 of the 3 leaders."""
    pushed, push = Counter[bool](), RuleContext.push

    def counting(context: RuleContext, peer: PeerId, *args: Any, **options: Any) -> None:
        pushed[int(context.me[1:]) // 4 != int(peer[1:]) // 4] += 1
        push(context, peer, *args, **options)

    monkeypatch.setattr(RuleContext, "push", counting)
    crowd = crowd_of(12, CALM, 4, levels=levels)
    rounds = 5
    crowd.run(2000.0, steps=rounds)
    # Some peers may have begun the next round.
    assert pushed[True] / rounds == pytest.approx(between, abs=between / rounds)
    assert pushed[False] / rounds == pytest.approx(within, abs=within / rounds)
