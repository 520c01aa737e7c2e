"""All peers agree on the steps of the swarm, including those of dead and returned peers."""

from rumor.gossip.effects.effects import Send
from rumor.gossip.wire.codec import decode, encode
from rumor.gossip.wire.messages import STEPS_MAX, Hello, Push

from ..scene import ANCHOR, BRIEF, Scene, hello, member


def test_the_steps_of_a_swarm_are_the_same_for_all_peers() -> None:
    scene = Scene(BRIEF).founded("a", "b", "c")
    for count, id in enumerate("abc"):
        for _ in range(count + 1):
            scene.step(id)
    scene.run_for(10)
    rows = {"a": 1, "b": 2, "c": 3}
    clocks = [peer.table.clock for peer in scene.peers.values()]
    assert all((clock.rows(), clock.total) == (rows, 6) for clock in clocks)


def test_newcomers_also_count_the_steps_of_dead_peers() -> None:
    scene = Scene(BRIEF).founded()
    for _ in range(7):
        scene.step("b")
    scene.run_for(3, "a", "b")
    del scene.peers["b"]
    scene.run_for(15, "a")
    assert scene.live() == ["a"]
    scene.join("c", "a")
    scene.run_for(3, "a", "c")
    assert scene.peers["c"].table.clock.rows() == {"b": 7, "c": 0}
    assert scene.peers["c"].table.clock.total == 7


def test_peers_count_the_steps_of_an_incarnation_that_lost_its_checkpoint() -> None:
    scene = Scene(BRIEF).founded("a", "d")
    scene.send_hello("a", member("b", step=100))
    for heartbeat in range(1, 9):
        scene.send_hello("a", member("b", incarnation=2, heartbeat=heartbeat, step=3))
        scene.run_for(1, "a", "d")
    totals = [scene.peers[id].table.clock.total for id in "ad"]
    assert totals == [100, 100]


def test_a_peer_continues_from_the_clock_of_its_checkpoint() -> None:
    scene = Scene()
    peer = scene.enter("a", clock={"a": 3, "b": 10})
    scene.join("a")
    assert (peer.table.clock.total, peer.known()) == (13, ())
    scene.step("a")
    assert (peer.table.clock.rows(), peer.state.swarm_steps) == ({"a": 4, "b": 10}, 14)


def test_the_steps_of_the_swarm_do_not_change_between_calls_of_the_rule() -> None:
    scene = Scene(BRIEF).founded()
    a = scene.peers["a"]
    scene.step("a")
    assert a.state.swarm_steps == 1
    scene.send_hello("a", member("b", heartbeat=99, step=40))
    assert (a.table.clock.total, a.state.swarm_steps) == (41, 1)
    scene.step("a", trained=False)
    assert a.state.swarm_steps == 41


def test_steps_never_exceed_the_maximum_of_a_message() -> None:
    """Otherwise a row from a damaged peer would make all later messages of others unreadable."""
    scene = Scene(BRIEF).founded("a", "b")
    body = hello(member("b", heartbeat=99, step=STEPS_MAX), clock=(("a", STEPS_MAX),))
    scene.receive(scene.letter("b", "a", body))
    effects = scene.act("a", lambda context: context.push("b", 5)) + scene.wake_for("a", 2.0)
    envelopes = [effect.envelope for effect in effects if isinstance(effect, Send)]
    assert {type(envelope.body) for envelope in envelopes} >= {Hello, Push}
    for envelope in envelopes:
        frame = bytes(envelope.frame_bytes)
        assert decode(encode(envelope, frame)) == envelope


def test_a_single_message_cannot_end_training() -> None:
    scene = Scene().founded()
    for _ in range(40):
        scene.wait(0.1)
        scene.step("a")
    rows = tuple((f"x{index}", STEPS_MAX) for index in range(1000))
    body = hello(member("s", step=STEPS_MAX), member("b", heartbeat=99, step=STEPS_MAX), clock=rows)
    scene.tell("s", "a", body, swarm=ANCHOR)
    assert scene.peers["a"].table.clock.total < 40 + 4 * 10 * (16 + 16 + 4 * 2)
    assert scene.peers["a"].table.clock.rows()["a"] == 40
    scene.send_hello("a", member("b", heartbeat=100, step=7))
    assert scene.peers["a"].table.clock.rows()["b"] >= 7
