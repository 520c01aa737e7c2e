"""What one peer, or one that pretends to be many, can do to another at most."""

from dataclasses import replace

import pytest

from rumor.gossip import Phase
from rumor.gossip.effects.effects import Mix, Record
from rumor.gossip.effects.ledger import Kind
from rumor.gossip.protocol.limits import FENCES_MAX, NEWCOMERS_MAX
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import STEPS_MAX, Ack, Ask, Leave, Push, Query

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
