"""Peers exchange views, probe silent peers, redial dead ones, and distinguish incarnations."""

from itertools import pairwise

import pytest

from rumor.gossip.effects.effects import Halt
from rumor.gossip.effects.events import (
    PeerDied,
    PeerMet,
    PeerRecovered,
    PeerSuspected,
    StaleIncarnation,
)
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.wire.messages import Hello, Phase, Query

from ..scene import (
    ANCHOR,
    BRIEF,
    OTHER_ANCHOR,
    Effects,
    Scene,
    destinations,
    hello,
    letters,
    member,
    only,
)


def entry_weights(effects: Effects, kind: Kind) -> list[int]:
    return [e.weight for e in only(effects, Entry) if e.kind is kind]


def test_a_silent_peer_is_probed_before_it_is_considered_dead() -> None:
    scene = Scene(BRIEF).founded()
    effects = scene.wake_for("a", 30.0)
    events = [e for e in effects if isinstance(e, PeerSuspected | PeerDied | PeerRecovered)]
    assert events == [PeerSuspected("b"), PeerDied("b")]
    probes = effects[effects.index(PeerSuspected("b")) + 1 :]
    assert destinations(probes)[0] == "b" and letters(probes)[0].body.reply


def test_dead_peers_are_dialled_forever_with_growing_intervals() -> None:
    scene = Scene(BRIEF).founded()
    scene.wake_for("a", 12.0)
    dials = [destinations(scene.wake_for("a", 60.0), Hello).count("b") for _ in range(5)]
    # The first dials come soon; later waits are 4 s to 12 s, 8 s on average.
    assert dials[0] >= max(dials[1:]) and all(5 <= count <= 15 for count in dials[1:])
    scene, dialled_s = Scene().founded(), []
    for _ in range(1000):
        if destinations(scene.wake_for("a", 1.0), Hello):
            dialled_s.append(scene.now)
    late = [after - before for before, after in pairwise(dialled_s) if before > 300]
    assert len(late) > 5 and 30 <= min(late) and max(late) <= 91
    assert len(set(late)) > 3, "without jitter all peers would dial at once"


def test_a_superseded_incarnation_stops_unless_it_is_still_seeking() -> None:
    newcomer = Scene()
    newcomer.join("a", "b")
    why = "another peer called a has started since: each needs a name of its own"
    for scene, reasons in ((newcomer, []), (Scene(BRIEF).founded(), [why])):
        effects = scene.send_hello("a", member("b", heartbeat=99), member("a", incarnation=5))
        assert StaleIncarnation(5) in effects
        assert [halt.reason for halt in only(effects, Halt)] == reasons


def test_a_member_reports_the_later_incarnation_to_an_earlier_one() -> None:
    scene = Scene(BRIEF).founded()
    scene.send_hello("b", member("a", incarnation=4))
    (answer,) = letters(scene.send_hello("b", member("a", incarnation=3), reply=True))
    assert answer.destination_incarnation == 3 and not answer.body.reply
    assert [(m.id, m.incarnation) for m in answer.body.members] == [("b", 1), ("a", 4)]
    assert not scene.send_hello("b", member("a", incarnation=3)), "no answer unless it asks for one"
    assert not scene.tell("a", "b", Query(1), incarnation=3)


def dead_large_incarnation() -> Scene:
    """Peer a considers incarnation 7 of b dead; b is about to return with a smaller number."""
    scene = Scene(BRIEF).founded()
    scene.send_hello("a", member("b", incarnation=7))
    scene.push("a", "b")
    scene.wake_for("a", 30.0)
    assert scene.peers["a"].account.outstanding["b", 7].stranded
    return scene


def greet_from_smaller(scene: Scene, heartbeat: int) -> Effects:
    """Let the incarnation of b with the smaller number say hello."""
    return scene.send_hello("a", member("b", incarnation=3, heartbeat=heartbeat), reply=True)


def test_a_running_smaller_incarnation_replaces_a_dead_larger_one() -> None:
    """The number is smaller because the clock was ahead before, and the disk is lost."""
    scene = dead_large_incarnation()
    for heartbeat in range(1, 12):
        effects = greet_from_smaller(scene, heartbeat)
        assert destinations(effects, Hello) == ["b"] and PeerMet("b") not in effects, (
            "b only learns of the larger incarnation"
        )
        assert scene.live() == ["a"]
        scene.wake_for("a", 1.0)
    effects = greet_from_smaller(scene, 12)
    assert PeerMet("b") in effects and len(entry_weights(effects, Kind.WRITTEN_OFF)) == 1
    assert [m.incarnation for m in scene.peers["a"].table.live()] == [1, 3]
    assert scene.tell("b", "a", Query(1), incarnation=3), "its messages are accepted"
    effects = scene.send_hello("a", member("b", incarnation=7, heartbeat=99))
    assert PeerMet("b") in effects, "a larger number still means a later incarnation"
    assert not scene.tell("b", "a", Query(1), incarnation=3)


def test_late_messages_and_hearsay_do_not_revive_an_earlier_incarnation() -> None:
    scene = dead_large_incarnation()
    before = scene.peers["a"].known()
    for _ in range(20):  # the same message over and over
        greet_from_smaller(scene, 5)
        scene.wake_for("a", 1.0)
    for heartbeat in range(6, 20):  # many messages at once, from another incarnation
        scene.send_hello("a", member("b", incarnation=2, heartbeat=heartbeat))
    scene.tell("b", "a", Query(1), incarnation=3)
    assert scene.peers["a"].known() == before
    assert scene.peers["a"].account.outstanding["b", 7].stranded
    for heartbeat in range(1, 30):
        reported = member("b", incarnation=3, heartbeat=heartbeat)
        scene.send_hello("a", member("c", heartbeat=heartbeat), reported)
        scene.wake_for("a", 1.0)
    assert [(m.id, m.incarnation) for m in scene.peers["a"].known()] == [("b", 7), ("c", 1)]


def test_an_earlier_incarnation_waits_again_after_a_message_of_the_later_one() -> None:
    scene = dead_large_incarnation()
    greet_from_smaller(scene, 1)
    scene.wake_for("a", 9.0)
    scene.send_hello("a", member("b", incarnation=7, heartbeat=50))
    scene.wake_for("a", 30.0)
    assert PeerMet("b") not in greet_from_smaller(scene, 2)
    scene.wake_for("a", 11.0)
    assert PeerMet("b") in greet_from_smaller(scene, 3)


def crowd(count: int) -> Scene:
    """A peer a that has met *count* other peers."""
    scene = Scene(BRIEF)
    scene.join("a")
    scene.send_hello("a", *(member(f"p{index:03}") for index in range(count)))
    for index in range(count):
        scene.send_hello("a", member(f"p{index:03}", heartbeat=2))
    scene.mail.clear()
    return scene


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (64, 64), (65, 64), (200, 64)])
def test_a_change_of_phase_is_sent_at_once_to_a_limited_number_of_peers(
    count: int, expected: int
) -> None:
    scene = crowd(count)
    assert len(scene.peers["a"].table.live()) == 1 + count
    effects = scene.finish("a")
    assert len(set(destinations(effects, Hello))) == len(destinations(effects, Hello)) == expected
    assert {body.members[0].phase for body in scene.sent(effects, Hello)} == {Phase.FINISHED}


def test_peers_known_by_hearsay_get_no_immediate_hello_in_a_large_swarm() -> None:
    for count, greeted in ((3, 3), (200, 0)):
        new = [member(f"q{index}") for index in range(3)]
        effects = crowd(count).send_hello("a", member("p000", heartbeat=9), *new)
        assert len(only(effects, PeerMet)) == 3
        assert len(destinations(effects, Hello)) == greeted


def test_a_peer_answers_a_probe_with_only_its_own_entry() -> None:
    scene = Scene(BRIEF).founded("a", "b", "c")
    for entries, expected in (
        ([member("b", heartbeat=50)], ["a"]),
        ([member("b", heartbeat=51), member("c")], ["a", "b", "c"]),
    ):
        (answer,) = scene.sent(scene.send_hello("a", *entries, reply=True), Hello)
        assert [m.id for m in answer.members] == expected
    first = scene.letter("d", "a", hello(member("d"), reply=True), to_incarnation=0)
    (answer,) = scene.sent(scene.receive(first), Hello)
    assert [m.id for m in answer.members] == ["a", "b", "c"], "a newcomer gets the whole table"


def test_seekers_of_another_swarm_do_not_count_as_founders() -> None:
    scene = Scene()
    scene.join("a", "b", founders=2)
    scene.send_hello("a", member("b", Phase.SEEKING), swarm=OTHER_ANCHOR)
    scene.wake_for("a", 4.0)
    assert scene.peers["a"].phase is Phase.TRAINING and scene.peers["a"].swarm == ANCHOR
