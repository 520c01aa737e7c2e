"""Merging ends once measured agreement is reached, in rounds that wait for all peers."""

import math
from collections import deque
from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.protocol.leave import widest_distance
from rumor.gossip.wire.messages import Hello, Phase

from ..scene import Scene, destinations, member

FAR, NEAR, CLOSE = (1.0, 0.1), (1.0, 0.0101), (1.0, 0.01)


def finished(*ids: str, outward: str = "", **sketches: tuple[float, ...]) -> Scene:
    """Peers that all know that all have finished; some only dial out."""
    scene = Scene(ProtocolConfig(merge_rounds=1)).founded(*ids, outward=outward)
    scene.sketches = {id: CLOSE for id in ids} | sketches
    for id in ids:
        scene.finish(id)
    scene.deliver()
    return scene


def merge_without_c(scene: Scene) -> None:
    """Let two of three peers merge after the third has been silent long enough."""
    for _ in range(300):
        scene.wait(1.0)
        for id in "ab":
            scene.wake(id)
        scene.mail = deque(letter for letter in scene.mail if letter.destination != "c")
        scene.merge("a", "b", turns=1)
        if scene.peers["a"].done:
            break
    assert {scene.peers[id].phase for id in "ab"} == {Phase.QUIET}


def agreements(scene: Scene) -> list[tuple[Phase, bool]]:
    return [(peer.phase, peer.agreement.reached) for peer in scene.peers.values()]


def test_peers_become_quiet_once_all_know_that_their_models_agree() -> None:
    scene = finished("a", "b", "c", b=NEAR)
    scene.merge("a", "b", "c")
    assert agreements(scene) == [(Phase.QUIET, True)] * 3
    distance = math.dist(NEAR, CLOSE) / math.hypot(*CLOSE)
    assert {peer.agreement.distance for peer in scene.peers.values()} == {distance}


def test_fast_peers_wait_for_a_stopped_peer() -> None:
    scene = finished("a", "b", "c")
    scene.merge("a", "b", turns=20)
    assert agreements(scene) == [(Phase.FINISHED, False)] * 3
    scene.merge("a", "b", "c")
    assert agreements(scene) == [(Phase.QUIET, True)] * 3


@pytest.mark.parametrize("sketch", [FAR, (), (math.inf, 0.0)])
def test_peers_keep_merging_distant_models_until_they_give_up(
    sketch: tuple[float, ...],
) -> None:
    scene = finished("a", "b", b=sketch)
    scene.merge("a", "b", turns=3)
    assert agreements(scene) == [(Phase.FINISHED, False)] * 2
    scene.merge("a", "b", turns=77)
    assert agreements(scene) == [(Phase.QUIET, False)] * 2
    assert scene.peers["a"].agreement.distance == widest_distance([CLOSE, sketch])
    scene = finished("a", "b", b=sketch)
    scene.merge("a", "b", turns=3)
    scene.sketches["b"] = CLOSE
    scene.merge("a", "b")
    assert agreements(scene) == [(Phase.QUIET, True)] * 2


def test_peers_do_not_agree_if_one_falls_silent_while_merging() -> None:
    scene = finished("a", "b", "c")
    merge_without_c(scene)
    assert agreements(scene)[:2] == [(Phase.QUIET, False)] * 2


def test_a_peer_left_behind_compares_its_model_with_the_others() -> None:
    scene = finished("a", "b", "c", c=FAR)
    merge_without_c(scene)
    for id in "cab":
        scene.wake(id)
    scene.deliver()
    scene.merge("c")
    c = scene.peers["c"]
    assert c.done and not c.agreement.reached
    assert c.agreement.distance == widest_distance([CLOSE, FAR])


def test_a_lost_stage_announcement_is_repeated() -> None:
    scene = finished("a", "b")
    for _ in range(8):
        scene.act("a", lambda context: context.may_close(True), trained=False)
        scene.act("b", lambda context: context.may_close(True), trained=False)
        scene.deliver(lose=(Hello,))
    assert agreements(scene) == [(Phase.FINISHED, False)] * 2
    for _ in range(8):
        scene.wait(1.0)
        scene.wake("a")
        scene.wake("b")
        scene.merge("a", "b", turns=1)
    assert agreements(scene) == [(Phase.QUIET, True)] * 2


def test_a_peer_that_returns_before_the_comparison_restarts_the_round() -> None:
    scene = finished("a", "b")
    a = scene.peers["a"]
    assert a.sketched(CLOSE, scene.now) == [] and not a.agreement.compares, "no peer waits for it"
    scene.merge("a", "b", turns=1)
    scene.step("a", trained=False)
    assert a.agreement.compares
    scene.introduce("c", "a", phase=Phase.FINISHED)
    scene.step("a", trained=False)
    assert not a.agreement.compares
    assert agreements(scene) == [(Phase.FINISHED, False)] * 2


def test_the_widest_distance_is_relative_to_the_smaller_norm() -> None:
    assert widest_distance([]) == widest_distance([(1.0,)]) == 0.0
    assert widest_distance([(0.0, 0.0), (0.0, 0.0)]) == 0.0
    assert widest_distance([(1.0, 0.0), (2.0, 0.0), (4.0, 0.0)]) == 3.0
    assert widest_distance([(0.0,), (1.0,)]) == math.inf
    assert widest_distance([(1.0,), ()]) == widest_distance([(math.inf,), (1.0,)]) == math.inf


def test_peers_that_only_dial_out_learn_of_one_another_at_once_and_agree() -> None:
    scene = finished("a", "b", "c", "d", outward="bc")
    scene.merge("a", "b", "c", "d")  # no time passes, so no views are exchanged
    assert agreements(scene) == [(Phase.QUIET, True)] * 4
    assert all(peer.done for peer in scene.peers.values())
    effects = scene.send_hello("a", replace(scene.peers["b"].table.me, heartbeat=99))
    assert not destinations(effects, Hello), "a known stage is not passed on"


def test_peers_wait_for_a_peer_known_only_by_hearsay() -> None:
    scene = finished("a", "b")
    c = member("c", addresses=())
    scene.send_hello("a", replace(scene.peers["b"].table.me, heartbeat=99), c)
    assert not scene.peers["a"].merging
    scene.merge("a", "b")
    assert agreements(scene) == [(Phase.FINISHED, False)] * 2


def test_a_peer_waits_for_a_sketch_that_a_quiet_peer_can_pass_on() -> None:
    scene = finished("a", "b", "c", outward="bc")
    scene.merge("b", turns=1)
    a, c = (replace(scene.peers[id].table.me, heartbeat=99, merge=1, sketch=CLOSE) for id in "ac")
    closed = replace(a, heartbeat=100, merge=2, phase=Phase.QUIET)
    scene.send_hello("b", a, c)
    scene.step("b", trained=False)
    assert scene.peers["b"].agreement.compares
    scene.send_hello("b", closed)
    scene.step("b", trained=False)
    assert agreements(scene)[1] == (Phase.FINISHED, False)
    scene.send_hello("b", replace(closed, heartbeat=101), replace(c, heartbeat=100, merge=2))
    scene.step("b", trained=False)
    assert agreements(scene)[1] == (Phase.QUIET, True)
