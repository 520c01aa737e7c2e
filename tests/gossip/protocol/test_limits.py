"""What one peer, or one that pretends to be many, can do to another at most."""

from dataclasses import replace

import pytest

from rumor.gossip import GoSGD, Phase, Protocol, ProtocolConfig, RemoteProtocolError, stream
from rumor.gossip.effects.effects import Mix, Record
from rumor.gossip.effects.ledger import Kind
from rumor.gossip.membership.static import StaticMembership
from rumor.gossip.protocol import limits
from rumor.gossip.protocol.limits import (
    ASKS_MAX,
    COPIES_MAX,
    FENCES_MAX,
    NAMES_MAX,
    NEWCOMERS_MAX,
    OFFERS_MAX,
    WINDOWS_MAX,
    TokenBuckets,
)
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import (
    STEPS_MAX,
    Ack,
    Ask,
    Chunk,
    Leave,
    Offer,
    Push,
    Query,
    Refer,
)
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.vector import SCHEMA

from ..membership.test_swarm_steps import hello, member, tells
from ..scene import ANCHOR, WIDE, Scene

SHARE_BYTES = 64
HOST = b"the-same-machine"


def offered(scene: Scene, weight: int, *, seq: int = 1) -> list[object]:
    """Let a stranger push so much weight to a, which mixes what has come."""
    body = Push(seq=seq, escrow=weight, size_bytes=SHARE_BYTES, epoch=0, round=0, note=0, step=0)
    scene.receive(scene.letter("s", "a", body, frame_bytes=SHARE_BYTES))
    return list(scene.mix_all("a"))


@pytest.mark.parametrize(
    ("own", "weight", "accepted"),
    [
        (ONE, ONE, ONE),
        (ONE, 99 * ONE, 8 * ONE),
        (ONE // 2, 99 * ONE, 9 * ONE // 2),
        (ONE // 2**20, 4 * ONE, 4 * ONE),
        (ONE // 2**20, 99 * ONE, 4 * ONE),
    ],
)
def test_of_a_share_no_more_weight_is_accepted_than_one_may_have(
    own: int, weight: int, accepted: int
) -> None:
    scene = Scene()
    scene.founded("a", "b")
    if own < ONE:
        scene.push("a", "b", ONE - own)
    scene.introduce("s", "a")
    effects = offered(scene, weight)
    (mixed,) = [e for e in effects if isinstance(e, Mix)]
    (ack,) = [body for body in scene.sent(effects, Ack)]  # type: ignore[arg-type]
    assert ack.accepted == accepted == scene.peers["a"].weight - own
    assert mixed.fraction == accepted / (own + accepted)


def test_a_leaver_may_outweigh_what_is_held_here_up_to_what_all_have_brought() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE - ONE // 2**20)
    scene.introduce("s", "a")
    scene.receive(scene.letter("s", "a", Leave(gone=False)))
    offered(scene, 99 * ONE)
    assert scene.peers["a"].weight == 8 * ONE + ONE // 2**20


def test_rules_that_need_whole_shares_take_them_whole() -> None:
    scene = Scene(requirements=Requirements())
    scene.founded("a", "b")
    scene.introduce("s", "a")
    offered(scene, 99 * ONE)
    assert scene.peers["a"].weight == 100 * ONE


def test_a_swarm_of_64_shrinks_to_2_and_strands_nothing() -> None:
    ids = tuple(f"p{index:02}" for index in range(64))
    scene = Scene()
    scene.founded(*ids)
    for id in ids[2:]:
        scene.leave(id)
        for _ in range(6):
            scene.deliver()
            for heir in scene.peers:
                if scene.peers[heir].staged:
                    scene.mix_all(heir, trained=False)
            scene.wait(0.5)
            scene.wake(id)
            if scene.peers[id].done:
                break
        assert scene.peers[id].done and not scene.peers[id].weight
        del scene.peers[id]
        scene.mail.clear()
    assert sum(peer.weight for peer in scene.peers.values()) == 64 * ONE


def test_questions_about_shares_that_never_came_write_few_lines() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.introduce("s", "a")

    def lines(first: int) -> int:
        effects = [
            effect
            for seq in range(first, first + 1000)
            for effect in scene.receive(scene.letter("s", "a", Query(seq)))
        ]
        return len([e for e in effects if isinstance(e, Record)])

    assert lines(1) == FENCES_MAX == scene.peers["a"].account.decided["s", 1][0]
    assert scene.receive(scene.letter("s", "a", Query(FENCES_MAX))), "repeated as often as asked"
    scene.wait(1.0)
    assert lines(2000) == FENCES_MAX


def test_newcomers_that_are_made_up_cost_a_bounded_part_of_the_weight() -> None:
    """On the same machine they need no credit: all read one copy."""
    scene = Scene(WIDE)
    scene.founded("a", "b", host=HOST)
    for index in range(200):
        newcomer = replace(member(f"n{index}", phase=Phase.JOINING), host=HOST)
        tells(scene, "a", newcomer)
        scene.receive(scene.letter(newcomer.id, "a", Ask()))
    effects = scene.step("a")
    pushed = [e for e in effects if isinstance(e, Record) and e.entry.kind is Kind.PUSHED]
    assert len(pushed) == NEWCOMERS_MAX
    assert not [e for e in scene.step("a") if isinstance(e, Record)]
    assert scene.peers["a"].weight >= ONE >> (NEWCOMERS_MAX + 1)


def test_one_message_does_not_end_training() -> None:
    scene = Scene()
    scene.founded("a", "b")
    for _ in range(40):
        scene.wait(0.1)
        scene.step("a")
    rows = tuple((f"x{index}", STEPS_MAX) for index in range(1000))
    body = hello(member("s", step=STEPS_MAX), member("b", heartbeat=99, step=STEPS_MAX), clock=rows)
    scene.receive(scene.letter("s", "a", body, swarm=ANCHOR))
    assert scene.peers["a"].clock.total < 40 + 4 * 10 * (16 + 16 + 4 * 2)
    assert scene.peers["a"].clock.rows()["a"] == 40
    tells(scene, "a", member("b", heartbeat=100, step=7))
    assert scene.peers["a"].clock.rows()["b"] >= 7


def test_a_bucket_is_refilled_and_may_owe_some() -> None:
    buckets: TokenBuckets[str] = TokenBuckets(4, 1.0)
    assert buckets.take("a", 4, 0.0) and not buckets.take("a", 1, 0.5)
    assert buckets.level("b", 0.5) == 4
    buckets.spend("a", 3.0, 1.0)
    assert buckets.level("a", 1.0) == -2 and buckets.level("a", 100.0) == 4


def test_buckets_of_those_who_have_not_spent_for_longest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "_KEPT_MAX", 2)
    buckets: TokenBuckets[str] = TokenBuckets(1, 1.0)
    for name in "abac":
        buckets.take(name, 1, 0.0)
    assert [buckets.level(name, 0.0) for name in "abc"] == [0, 1, 0]


def a_share(seq: int) -> Offer:
    return Offer(
        seq=seq,
        escrow=ONE,
        size_bytes=SHARE_BYTES,
        frame_bytes=16,
        epoch=0,
        round=0,
        note=0,
        step=0,
    )


def offers(scene: Scene, seqs: range) -> int:
    """Let s offer shares of which nothing follows; of how many a writes a line."""
    effects = [e for seq in seqs for e in scene.receive(scene.letter("s", "a", a_share(seq)))]
    return len([e for e in effects if isinstance(e, Record)])


def test_shares_that_come_to_nothing_write_few_lines() -> None:
    scene = Scene(WIDE)
    scene.founded("a", "b")
    scene.introduce("s", "a")
    assert offers(scene, range(1, 2 * OFFERS_MAX)) == OFFERS_MAX
    scene.wait(WIDE.gossip_s / 2)
    assert offers(scene, range(3 * OFFERS_MAX, 5 * OFFERS_MAX)) == OFFERS_MAX // 2


def test_shares_that_are_accepted_have_no_bound() -> None:
    """The honest peak: a share at each step, as fast as anybody can take them."""
    scene = Scene()
    scene.founded("a", "b")
    scene.introduce("s", "a")
    for seq in range(1, OFFERS_MAX + 200):
        effects = offered(scene, 1 << 900, seq=seq)
        assert [ack.accepted for ack in scene.sent(effects, Ack)] == [1 << 900]  # type: ignore[arg-type]


def test_the_fastest_honest_sender_whose_shares_are_all_refused_is_not_held_up() -> None:
    """It hears of each before it begins the next: a step and a round trip take a millisecond."""
    scene = Scene(WIDE)
    scene.founded("a", "b")
    scene.introduce("s", "a")
    scene.fill("a")
    for seq in range(1, 2 * OFFERS_MAX):
        scene.wait(WIDE.gossip_s / 1000)
        effects = scene.receive(scene.letter("s", "a", a_share(seq)))
        assert len(scene.sent(effects, Ack)) == 1


def test_an_offer_that_is_repeated_is_answered_and_costs_nothing() -> None:
    scene = Scene(WIDE)
    scene.founded("a", "b")
    scene.introduce("s", "a")
    for _ in range(2 * OFFERS_MAX):
        assert scene.receive(scene.letter("s", "a", a_share(1)))
    assert offers(scene, range(2, 3)) == 1


def test_whoever_sends_what_nobody_takes_has_nothing_to_offer_for_a_while() -> None:
    scene = Scene(WIDE)
    scene.founded("a", "b")
    scene.introduce("s", "a")
    chunk, frame_bytes = Chunk(7, 0, 0), 16
    scene.receive(scene.letter("s", "a", a_share(1)))
    windows = WINDOWS_MAX * WIDE.window_bytes // frame_bytes
    for _ in range(windows - 1):
        scene.receive(scene.letter("s", "a", chunk, frame_bytes=frame_bytes))
    assert offers(scene, range(2, 3)) == 1
    # A frame of the share that is open counts for nothing.
    scene.receive(scene.letter("s", "a", Chunk(2, 0, 0), frame_bytes=frame_bytes))
    assert offers(scene, range(3, 4)) == 1
    scene.receive(scene.letter("s", "a", chunk, frame_bytes=frame_bytes))
    assert offers(scene, range(4, 5)) == 0
    scene.wait(WIDE.gossip_s)
    assert offers(scene, range(5, 6)) == 1


def test_a_newcomer_is_heard_asking_as_often_as_an_honest_one_asks() -> None:
    scene = Scene()
    scene.founded("a", "b")
    tells(scene, "a", member("n", phase=Phase.JOINING))
    asking = scene.peers["a"]._donations.asking
    for _ in range(ASKS_MAX + 5):
        asking.clear()
        scene.receive(scene.letter("n", "a", Ask()))
    assert asking == {}
    scene.wait(1.0)
    scene.receive(scene.letter("n", "a", Ask()))
    assert [*asking] == ["n"]


def test_a_newcomer_that_asks_again_and_again_gets_few_copies() -> None:
    scene = Scene()
    scene.founded("a", "b")
    tells(scene, "a", member("n", phase=Phase.JOINING))
    copies = 0
    for _ in range(40):
        scene.wait(0.1)
        scene.receive(scene.letter("n", "a", Ask()))
        for push in scene.sent(scene.step("a"), Push):
            copies += 1
            scene.receive(scene.letter("n", "a", Ack(push.seq, push.escrow)))
    assert copies == COPIES_MAX
    assert [*scene.peers["a"]._donations.asking] == ["n"], "it waits for its turn"
    scene.wait(scene.config.stall_s)
    assert scene.sent(scene.step("a"), Push)


def names(scene: Scene, first: int, count: int, heartbeat: int) -> None:
    told = [member(f"x{index}") for index in range(first, first + count)]
    tells(scene, "a", member("s", heartbeat=heartbeat), *told)


def test_a_member_learns_so_many_names_from_one_peer_and_the_rest_later() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.introduce("s", "a")
    table = scene.peers["a"]._state.table
    before = len(table)
    names(scene, 0, NAMES_MAX, 2)
    assert len(table) == before + NAMES_MAX, "as many newcomers at once as ever came together"
    names(scene, NAMES_MAX, 10, 3)
    refer = Refer((member("y"),))
    scene.receive(scene.letter("s", "a", refer))
    assert len(table) == before + NAMES_MAX
    scene.wait(1.0)
    names(scene, NAMES_MAX, 10, 4)
    scene.receive(scene.letter("s", "a", refer))
    assert len(table) == before + NAMES_MAX + 11


def test_among_the_workers_of_one_simulation_there_are_no_limits() -> None:
    """They never gossip, so that no interval would ever end."""
    config = ProtocolConfig(gossip_s=float("inf"), dead_s=float("inf"))
    protocol = Protocol(
        id="a",
        incarnation=1,
        schema=SCHEMA,
        anchor=ANCHOR,
        rule=GoSGD(0.5),
        neighbors=complete,
        rng=lambda purpose: stream(0, "a", purpose),
        config=config,
        membership=StaticMembership(("a", "b")),
    )
    protocol.join(0.0)
    for seq in range(1, 2 * OFFERS_MAX):
        body = Query(seq) if seq % 2 else replace(a_share(seq), size_bytes=1)
        letter = Scene().letter("b", "a", body)
        if seq % 2:
            assert any(isinstance(e, Record) for e in protocol.receive(letter, 0.0))
        else:
            with pytest.raises(RemoteProtocolError):  # it was let in, and looked at
                protocol.receive(letter, 0.0)
