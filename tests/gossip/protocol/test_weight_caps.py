"""How much of one share is accepted at most: no single one decides what everybody's model is."""

import pytest

from rumor.gossip.effects.effects import Mix
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Leave

from ..scene import Effects, Scene, a_push, of

SHARE_BYTES = 64


def offered(scene: Scene, weight: int) -> Effects:
    """Let a stranger push so much weight to a, which mixes what has come."""
    body = a_push(escrow=weight, size_bytes=SHARE_BYTES)
    scene.receive(scene.letter("s", "a", body, frame_bytes=SHARE_BYTES))
    return scene.mix_all("a")


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
def test_no_more_weight_is_accepted_than_one_may_have(own: int, weight: int, accepted: int) -> None:
    scene = Scene().founded("a", "b")
    if own < ONE:
        scene.push("a", "b", ONE - own)
    scene.introduce("s", "a")
    effects = offered(scene, weight)
    (mixed,) = of(effects, Mix)
    (ack,) = [body for body in scene.sent(effects, Ack)]
    assert ack.accepted == accepted == scene.peers["a"].state.weight - own
    assert mixed.fraction == accepted / (own + accepted)


def test_a_leaver_may_outweigh_what_is_held_here_up_to_what_all_have_brought() -> None:
    scene = Scene().founded("a", "b")
    scene.push("a", "b", ONE - ONE // 2**20)
    scene.introduce("s", "a")
    scene.receive(scene.letter("s", "a", Leave(gone=False)))
    offered(scene, 99 * ONE)
    assert scene.peers["a"].state.weight == 8 * ONE + ONE // 2**20


def test_rules_that_need_whole_shares_take_them_whole() -> None:
    scene = Scene(requirements=Requirements()).founded("a", "b")
    scene.introduce("s", "a")
    offered(scene, 99 * ONE)
    assert scene.peers["a"].state.weight == 100 * ONE


@pytest.mark.extended
def test_a_swarm_of_64_shrinks_to_2_and_strands_nothing() -> None:
    ids = tuple(f"p{index:02}" for index in range(64))
    scene = Scene().founded(*ids)
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
        assert scene.peers[id].done and not scene.peers[id].state.weight
        del scene.peers[id]
        scene.mail.clear()
    assert sum(peer.state.weight for peer in scene.peers.values()) == 64 * ONE
