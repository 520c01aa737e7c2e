"""The steps of a whole swarm: all count the same, those of the dead and the returned, too."""

from rumor.gossip.wire.messages import STEPS_MAX

from ..scene import ANCHOR, BRIEF, Scene, hello, member


def test_steps_of_those_who_are_gone_count_for_newcomers_too() -> None:
    scene = Scene(BRIEF).founded()
    for _ in range(7):
        scene.step("b")
    scene.go_on(3, "a", "b")
    del scene.peers["b"]
    scene.go_on(15, "a")
    assert [m.id for m in scene.peers["a"].table.live()] == ["a"]
    scene.join("c", "a")
    scene.go_on(3, "a", "c")
    assert scene.peers["c"].table.clock.rows() == {"b": 7, "c": 0}
    assert scene.peers["c"].table.clock.total == 7


def test_a_checkpoints_clock_is_where_a_peer_goes_on() -> None:
    scene = Scene()
    peer = scene.enter("a", clock={"a": 3, "b": 10})
    scene.join("a")
    assert (peer.table.clock.total, peer.known()) == (13, ())
    scene.step("a")
    assert (peer.table.clock.rows(), peer.state.swarm_steps) == ({"a": 4, "b": 10}, 14)


def test_between_two_turns_the_steps_of_the_swarm_stand_still() -> None:
    scene = Scene(BRIEF).founded()
    a = scene.peers["a"]
    scene.step("a")
    assert a.state.swarm_steps == 1
    scene.says("a", member("b", heartbeat=99, step=40))
    assert (a.table.clock.total, a.state.swarm_steps) == (41, 1)
    scene.step("a", trained=False)
    assert a.state.swarm_steps == 41


def test_one_message_does_not_end_training() -> None:
    scene = Scene().founded()
    for _ in range(40):
        scene.wait(0.1)
        scene.step("a")
    rows = tuple((f"x{index}", STEPS_MAX) for index in range(1000))
    body = hello(member("s", step=STEPS_MAX), member("b", heartbeat=99, step=STEPS_MAX), clock=rows)
    scene.tell("s", "a", body, swarm=ANCHOR)
    assert scene.peers["a"].table.clock.total < 40 + 4 * 10 * (16 + 16 + 4 * 2)
    assert scene.peers["a"].table.clock.rows()["a"] == 40
    scene.says("a", member("b", heartbeat=100, step=7))
    assert scene.peers["a"].table.clock.rows()["b"] >= 7
