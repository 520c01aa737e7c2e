"""Members of a static membership see one another's phases at once, without messages."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Greet, Inspect, Mix, Send
from rumor.gossip.membership.static import StaticMembership, StaticMemberTable
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Hello, Leave, Member, Offer, Phase

from ..scene import Effects, Scene, letters, only

IDS = ("ada", "bob", "cyd")
CONFIG = ProtocolConfig(gossip_s=float("inf"), dead_s=float("inf"))


def member(id: str) -> Member:
    return Member(id=id, incarnation=1, heartbeat=0, phase=Phase.SEEKING, step=0)


def tables() -> tuple[StaticMembership, list[StaticMemberTable]]:
    membership = StaticMembership(IDS)
    return membership, [StaticMemberTable(member(id), membership) for id in IDS]


def founded(
    config: ProtocolConfig = CONFIG, host: bytes = b""
) -> tuple[dict[str, Protocol], Effects]:
    """Protocols that have founded, and their effects."""
    scene, membership = Scene(config), StaticMembership(IDS)
    for id in IDS:
        scene.enter(id, rule=GoSGD(1.0), membership=membership, host=host)
    effects = [effect for id in IDS for effect in scene.join(id, founders=len(IDS))]
    return scene.peers, effects


def test_all_members_found_the_swarm_at_the_first_call_without_messages() -> None:
    peers, effects = founded()
    assert {(peer.phase, peer.account.weight) for peer in peers.values()} == {(Phase.TRAINING, ONE)}
    assert not only(effects, Send) and not only(effects, Greet)
    ada = peers["ada"]
    assert ada.table.clock.total == 0
    assert [one.id for one in ada.last_heard()] == ["bob", "cyd"]
    assert ada.known() == () and ada.departed() == ()


def test_members_exchange_shares_and_refuse_shares_of_a_stranger() -> None:
    peers, _ = founded()
    (push,) = letters(peers["ada"].step(0.1), Offer)
    receiver = peers[push.destination]
    assert not only(receiver.receive(replace(push, source="zoe"), 0.2), Inspect)
    (inspect,) = only(receiver.receive(push, 0.2), Inspect)
    receiver.inspected(inspect.share, 0.2, finite=True)
    assert [mix.share.sender for mix in only(receiver.step(0.3), Mix)] == ["ada"]
    # Large shares travel in frames, never in shared memory.
    peers, _ = founded(replace(CONFIG, inline_bytes_max=1), bytes(16))
    sent = only(peers["ada"].step(0.1), Send)
    assert [(type(send.envelope.body), send.shown) for send in sent] == [(Offer, False)]


@pytest.mark.parametrize("burn", [False, True])
def test_a_leaver_leaves_all_tables_at_once_and_hands_its_weight_on(burn: bool) -> None:
    peers, _ = founded()
    effects = peers["cyd"].leave(0.1, burn=burn)
    assert [m.id for m in peers["ada"].table.live()] == ["ada", "bob"]
    assert not letters(effects, Leave | Hello)
    handed = [letter.body.escrow for letter in letters(effects, Offer)]
    assert (handed, peers["cyd"].account.burned) == (([], ONE) if burn else ([ONE], 0))


def test_takers_are_the_same_tuple_until_a_phase_changes() -> None:
    membership, (ada, bob, cyd) = tables()
    for table in (ada, bob, cyd):
        table.advance(phase=Phase.TRAINING)
    before = ada.takers()
    assert before == IDS
    bob.stepped(0.0)
    bob.advance(phase=Phase.FINISHED)
    assert cyd.takers() is before
    bob.advance(phase=Phase.LEAVING)
    assert cyd.takers() == membership.takers() == ("ada", "cyd")
    # The run is over when all members have finished or left.
    ada.advance(phase=Phase.FINISHED)
    bob.advance(phase=Phase.LEFT)
    assert not membership.over and not cyd.over
    cyd.advance(phase=Phase.FINISHED)
    assert membership.over and ada.over


def test_an_unreachable_member_is_skipped_for_a_while() -> None:
    _, (ada, bob, _) = tables()
    bob.pass_over("ada", 5.0)
    assert bob.reachable(["ada"], 5.0) == ["ada"]
    assert bob.reachable(("ada", "cyd"), 4.0) == ["cyd"]
    assert ada.reachable(("bob", "zoe"), 0.0) == ["bob"]


def test_a_static_member_table_answers_like_any_other_table() -> None:
    _, (ada, bob, _) = tables()
    bob.advance(phase=Phase.TRAINING)
    for _ in range(3):
        bob.stepped(0.0)
    assert bob.me == Member(id="bob", incarnation=1, heartbeat=0, phase=Phase.TRAINING, step=3)
    assert len(ada) == 3
    assert (ada.incarnation("bob"), ada.incarnation("zoe")) == (1, 0)
    found = ada.member("bob")
    assert found is not None and found.phase is Phase.TRAINING
    assert ada.member("zoe") is None
    assert ada.can_meet(bob.me) and not ada.outward
    assert ada.spoke_since("bob", 100.0) and not ada.spoke_since("zoe", 0.0)
    bob.advance(phase=Phase.FINISHED)
    bob.advance(phase=Phase.LEAVING)
    assert not ada.is_alive("bob") and not ada.spoke_since("bob", 100.0)
    assert ada.others(alive=True) == ()
    assert [m.id for m in ada.live()] == ["ada", "cyd"]


def test_members_have_the_anchor_flag_and_host_of_the_membership() -> None:
    for anchored in (False, True):
        membership = StaticMembership(IDS, anchored=anchored, machines={"bob": b"elsewhere"})
        table = StaticMemberTable(member("ada"), membership)
        table.advance(anchored=not anchored)
        bob = table.member("bob")
        assert bob is not None and bob.anchored is anchored
        assert bob.host == b"elsewhere"


def test_the_clock_of_a_static_membership_counts_every_step_at_once() -> None:
    membership, (ada, bob, cyd) = tables()
    for table in (bob, bob, bob, cyd):
        table.stepped(0.0)
    assert [table.clock.total for table in (ada, bob, cyd)] == [4, 4, 4] and membership.total == 4
    assert [table.step for table in (ada, bob, cyd)] == [0, 3, 1] and not membership.rows()
    assert ada.clock.total == 4 and ada.step == 0 and bob.lockstep_total() == 9
    peers, _ = founded()
    for peer in peers.values():
        peer.step(1.0)
    assert [peer.state.swarm_steps for peer in peers.values()] == [1, 2, 3]
    assert {peer.table.clock.total for peer in peers.values()} == {3}
