"""The invariants detect damage to a small swarm within a second."""

from collections.abc import Callable

import pytest

from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import Form
from rumor.sim.fuzz import OPTIONS, Violation, draw
from rumor.sim.fuzz.peers import FuzzPeer
from rumor.sim.fuzz.swarm import FuzzSwarm
from rumor.sim.fuzz.trial import swarm_of
from rumor.sim.fuzz.vector import Taken


def trained() -> FuzzSwarm:
    """Three peers on a calm network, eight seconds after the first founded the swarm."""
    swarm = swarm_of(draw(1, 3, OPTIONS, ()), None, digests=False)
    swarm.run(8.0)
    return swarm


def mint(peer: FuzzPeer) -> None:
    peer.ledgers[0].weight += 1


def miscount(peer: FuzzPeer) -> None:
    peer.protocol.account.weight += 1


def wander(peer: FuzzPeer) -> None:
    peer.vector.x[0] = 1e6
    peer.ledgers[0].apply(Entry(Kind.FOUNDED, ONE))
    peer.protocol.account.apply(Entry(Kind.FOUNDED, ONE))


def hoard(peer: FuzzPeer) -> None:
    taken = Taken(bytearray(), Form())
    peer.vector.snapshots |= dict.fromkeys((1 << 20, 1 << 21, 1 << 22), taken)


@pytest.mark.parametrize(
    ("damage", "invariant"), [(mint, "order"), (miscount, "order"), (hoard, "leak"), (wander, "I4")]
)
def test_damage_is_detected_within_a_second(
    damage: Callable[[FuzzPeer], None], invariant: str
) -> None:
    swarm = trained()
    damage(swarm.peers["p0"])
    with pytest.raises(Violation) as caught:
        swarm.run(9.0)
    assert caught.value.invariant == invariant
    # The next peer to mix reports a model that wandered.
    assert "p0" in caught.value.peers or damage is wander


def test_weight_and_steps_out_of_nowhere_are_detected() -> None:
    swarm = trained()
    peer, invariants = swarm.peers["p0"], swarm.invariants
    invariants.check_clock(peer)
    invariants.steps["p1"] -= 1
    swarm.run(10.0)
    invariants.steps["p1"] = 0
    with pytest.raises(Violation, match="clock: p0 counts"):
        invariants.check_clock(peer)
    swarm = trained()
    for account in (swarm.peers["p0"].ledger, swarm.peers["p0"].protocol.account):
        account.weight += 1
    with pytest.raises(Violation, match="I1: Audit"):
        swarm.run(9.0)
