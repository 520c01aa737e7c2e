"""Members of a static membership see one another's phases at once, and nothing is sent for it."""

from dataclasses import replace
from functools import partial

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Effect, Greet, Inspect, Mix, Send
from rumor.gossip.effects.events import Event
from rumor.gossip.membership.static import StaticMembership, StaticMemberTable
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import stream
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Hello, Leave, Member, Offer, Phase
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.vector import SCHEMA

IDS = ("ada", "bob", "cyd")
CONFIG = ProtocolConfig(gossip_s=float("inf"), dead_s=float("inf"))


def member(id: str) -> Member:
    return Member(id=id, incarnation=1, heartbeat=0, phase=Phase.SEEKING, step=0)


def tables() -> tuple[StaticMembership, list[StaticMemberTable]]:
    membership = StaticMembership(IDS)
    return membership, [StaticMemberTable(member(id), membership) for id in IDS]


def protocols() -> dict[str, Protocol]:
    membership = StaticMembership(IDS)
    return {
        id: Protocol(
            id=id,
            incarnation=1,
            schema=SCHEMA,
            anchor=bytes(16),
            rule=GoSGD(1.0),
            neighbors=complete,
            rng=partial(stream, 0, id),
            config=CONFIG,
            membership=membership,
        )
        for id in IDS
    }


def test_everybody_founds_at_the_first_call_and_says_nothing() -> None:
    peers = protocols()
    effects: list[Effect | Event] = []
    for peer in peers.values():
        effects += peer.join(0.0, founders=len(IDS))
    assert all(peer.phase is Phase.TRAINING for peer in peers.values())
    assert all(peer.account.weight == ONE for peer in peers.values())
    assert not any(isinstance(effect, Send | Greet) for effect in effects)


def test_everybody_begins_at_step_zero() -> None:
    peers = protocols()
    for peer in peers.values():
        peer.join(0.0, founders=len(IDS))
    ada = peers["ada"]
    assert ada.clock.rows() == {"ada": 0} and ada.clock.total == 0


def test_a_share_travels_between_two_of_a_static_membership() -> None:
    peers = protocols()
    for peer in peers.values():
        peer.join(0.0, founders=len(IDS))
    sent = [e for e in peers["ada"].step(0.1) if isinstance(e, Send)]
    receiver = peers[sent[0].envelope.destination]
    inspects = [e for e in receiver.receive(sent[0].envelope, 0.2) if isinstance(e, Inspect)]
    receiver.inspected(inspects[0].share, 0.2, finite=True)
    mixed = [e for e in receiver.step(0.3) if isinstance(e, Mix)]
    assert [effect.share.sender for effect in mixed] == ["ada"]


def test_a_share_of_a_stranger_is_not_taken() -> None:
    peers = protocols()
    for peer in peers.values():
        peer.join(0.0, founders=len(IDS))
    (push,) = [
        effect.envelope
        for effect in peers["ada"].step(1.0)
        if isinstance(effect, Send) and isinstance(effect.envelope.body, Offer)
    ]
    receiver = peers[push.destination]
    assert not [
        effect
        for effect in receiver.receive(replace(push, source="zoe"), 1.0)
        if isinstance(effect, Inspect)
    ]
    assert [e for e in receiver.receive(push, 1.0) if isinstance(e, Inspect)]


def test_one_that_leaves_is_gone_for_all_at_once() -> None:
    peers = protocols()
    for peer in peers.values():
        peer.join(0.0, founders=len(IDS))
    effects = peers["cyd"].leave(0.1, burn=True)
    assert [m.id for m in peers["ada"].live()] == ["ada", "bob"]
    assert not any(
        isinstance(e, Send) and isinstance(e.envelope.body, Leave | Hello) for e in effects
    )
    assert peers["cyd"].account.burned == ONE


def test_takers_are_the_same_tuple_until_somebody_moves_on() -> None:
    membership, (ada, bob, cyd) = tables()
    for table in (ada, bob, cyd):
        table.advance(phase=Phase.TRAINING)
    before = ada.takers()
    assert before == IDS
    bob.stepped(0.0)
    bob.advance(phase=Phase.FINISHED)
    assert cyd.takers() is before
    bob.advance(phase=Phase.LEAVING)
    assert cyd.takers() == ("ada", "cyd")
    assert membership.takers() == ("ada", "cyd")


def test_a_static_membership_is_over_when_all_have_finished_or_left() -> None:
    membership, (ada, bob, cyd) = tables()
    ada.advance(phase=Phase.FINISHED)
    bob.advance(phase=Phase.LEFT)
    assert not membership.over and not cyd.over
    cyd.advance(phase=Phase.TRAINING)
    cyd.advance(phase=Phase.FINISHED)
    assert membership.over and ada.over


def test_a_member_that_could_not_be_reached_is_passed_over_for_a_while() -> None:
    _, (ada, bob, _) = tables()
    bob.pass_over("ada", 5.0)
    assert not bob.is_reachable("ada", 4.0)
    assert bob.is_reachable("ada", 5.0)
    assert bob.reachable(("ada", "cyd"), 4.0) == ["cyd"]
    assert ada.reachable(("bob", "zoe"), 0.0) == ["bob"]


def test_a_static_member_table_answers_as_any_does() -> None:
    _, (ada, bob, _) = tables()
    bob.advance(phase=Phase.TRAINING)
    for _ in range(3):
        bob.stepped(0.0)
    assert bob.me == Member(id="bob", incarnation=1, heartbeat=0, phase=Phase.TRAINING, step=3)
    assert len(ada) == 3
    assert ada.members() == (ada.me,)
    assert (ada.incarnation("bob"), ada.incarnation("zoe")) == (1, 0)
    assert ada.is_known("bob") and not ada.is_known("zoe")
    found = ada.member("bob")
    assert found is not None and found.phase is Phase.TRAINING
    assert ada.member("zoe") is None
    assert ada.has_left("zoe") and not ada.has_left("bob")
    assert ada.steps_at_end("bob") is None
    assert ada.trains("bob") and not ada.trains("zoe")
    bob.advance(phase=Phase.FINISHED)
    assert not ada.trains("bob") and not ada.is_leaving("bob")
    bob.advance(phase=Phase.LEAVING)
    assert ada.is_leaving("bob")


def test_members_of_a_static_membership_share_a_machine_unless_told() -> None:
    membership = StaticMembership(IDS)
    assert StaticMemberTable(member("ada"), membership).machine("bob") == b""
    membership = StaticMembership(IDS, machines={"bob": b"elsewhere"})
    assert StaticMemberTable(member("ada"), membership).machine("bob") == b"elsewhere"


def test_nobody_is_forgotten_in_a_static_membership() -> None:
    _, (ada, _, _) = tables()
    ada.disown("bob")
    assert ada.others(alive=True) == ()
    assert [m.id for m in ada.live()] == list(IDS)


def test_whether_they_know_the_anchor_the_membership_says() -> None:
    for anchored in (False, True):
        membership = StaticMembership(IDS, anchored=anchored)
        table = StaticMemberTable(member("ada"), membership)
        assert table.is_anchored("bob") is anchored
        table.advance(anchored=not anchored)
        assert table.is_anchored("bob") is anchored


def test_in_a_static_membership_large_shares_go_in_frames_and_none_is_shown() -> None:
    membership = StaticMembership(IDS)
    config = replace(CONFIG, inline_bytes_max=1)
    peers = [
        Protocol(
            id=id,
            incarnation=1,
            schema=SCHEMA,
            anchor=bytes(16),
            rule=GoSGD(1.0),
            neighbors=complete,
            rng=partial(stream, 0, id),
            config=config,
            membership=membership,
            host=bytes(16),
        )
        for id in IDS
    ]
    for peer in peers:
        peer.join(0.0, founders=len(IDS))
    sent = [effect for effect in peers[0].step(0.1) if isinstance(effect, Send)]
    assert [(type(send.envelope.body), send.shown) for send in sent] == [(Offer, False)]


def test_the_clock_of_a_static_membership_counts_every_step_at_once() -> None:
    membership, (ada, bob, cyd) = tables()
    for _ in range(3):
        bob.stepped(0.0)
    cyd.stepped(0.0)
    assert [table.clock.total for table in (ada, bob, cyd)] == [4, 4, 4] and membership.steps == 4
    assert [table.clock.rows() for table in (ada, bob, cyd)] == [
        {"ada": 0},
        {"bob": 3},
        {"cyd": 1},
    ]


def test_nobody_of_a_static_membership_has_to_be_told_of_steps() -> None:
    _, (ada, bob, _) = tables()
    bob.stepped(0.0)
    ada.clock.forget_others()
    assert ada.clock.rows_beside({}) == () and ada.clock.total == 1 and ada.step == 0


def test_in_a_static_membership_all_can_meet() -> None:
    _, (ada, bob, _) = tables()
    assert ada.can_meet(bob.me) and not ada.outward
    assert ada.spoke_since("bob", 100.0) and not ada.spoke_since("zoe", 0.0)
    assert ada.is_plausible(2**62, 0.0) and not ada.is_suspected("bob")
    bob.advance(phase=Phase.LEAVING)
    assert not ada.is_alive("bob") and not ada.spoke_since("bob", 100.0)


def test_the_steps_of_a_static_membership_are_known_to_its_protocols_after_their_steps() -> None:
    peers = protocols()
    for peer in peers.values():
        peer.join(0.0, founders=len(IDS))
    for peer in peers.values():
        peer.step(1.0)
    assert [peer.swarm_steps for peer in peers.values()] == [1, 2, 3]
    assert {peer.clock.total for peer in peers.values()} == {3}
    assert peers["ada"].known() == ()


def test_a_static_membership_has_nobody_to_forget() -> None:
    _, (ada, _, _) = tables()
    assert not ada.dead() and not ada.departed()
    peers = protocols()
    assert [one.id for one in peers["ada"].last_heard()] == ["bob", "cyd"]
    assert peers["ada"].departed() == ()


def test_a_leaver_of_a_static_membership_hands_on_at_once() -> None:
    peers = protocols()
    for peer in peers.values():
        peer.join(0.0, founders=len(IDS))
    sent = [e.envelope for e in peers["cyd"].leave(1.0) if isinstance(e, Send)]
    assert [envelope.body.escrow for envelope in sent if isinstance(envelope.body, Offer)] == [ONE]
