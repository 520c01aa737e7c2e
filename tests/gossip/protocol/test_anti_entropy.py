"""Views are exchanged, the silent are asked, the dead are dialled, and the clock is everybody's."""

from collections import Counter
from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Effect, Halt, Record, Send
from rumor.gossip.effects.events import (
    Event,
    PeerDied,
    PeerMet,
    PeerRecovered,
    PeerRefused,
    PeerSuspected,
    StaleIncarnation,
)
from rumor.gossip.effects.ledger import Kind
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Hello, Phase, Query, Refer

from ..scene import ANCHOR, OTHER_ANCHOR, Scene, hello, member, of, to

BRIEF = ProtocolConfig(suspect_s=4.0, dead_s=10.0, redial_s_max=8.0)

FAR = 10**9
"""A life that cannot be yet: it is eleven days ahead."""


def together(*ids: str, config: ProtocolConfig = BRIEF) -> Scene:
    scene = Scene(config)
    scene.founded(*ids)
    scene.mail.clear()
    return scene


def written(effects: list[Effect | Event], kind: Kind) -> list[int]:
    return [e.entry.weight for e in effects if isinstance(e, Record) and e.entry.kind is kind]


def test_a_peer_that_falls_silent_is_asked_before_it_is_considered_dead() -> None:
    scene = together("a", "b")
    effects = scene.passes("a", 30.0)
    events = [e for e in effects if isinstance(e, PeerSuspected | PeerDied | PeerRecovered)]
    assert events == [PeerSuspected("b"), PeerDied("b")]
    asked = effects[effects.index(PeerSuspected("b")) + 1]
    assert isinstance(asked, Send) and asked.envelope.destination == "b"
    assert isinstance(asked.envelope.body, Hello) and asked.envelope.body.reply


def test_one_that_answers_recovers_once_and_its_escrow_is_asked_about() -> None:
    scene = together("a", "b")
    scene.push("a", "b", 5)
    scene.mail.clear()
    scene.passes("a", 20.0)
    assert scene.peers["a"].account.outstanding["b", 1].stranded
    effects = scene.says("a", member("b", heartbeat=99))
    assert effects.count(PeerRecovered("b")) == 1 and to(effects, Query) == ["b"]
    assert PeerRecovered("b") not in scene.says("a", member("b", heartbeat=100))


def test_any_message_is_a_sign_of_life() -> None:
    scene = together("a", "b")
    scene.passes("a", 20.0)
    effects = scene.receive(scene.letter("b", "a", Query(1)))
    assert effects.count(PeerRecovered("b")) == 1
    assert [m.id for m in scene.peers["a"].live()] == ["a", "b"]


def test_hearsay_brings_a_dead_peer_back_once() -> None:
    scene = together("a", "b", "c")
    for _ in range(20):
        scene.wait(1.0)
        scene.says("a", member("c", heartbeat=round(scene.now) + 50))
        scene.wake("a")
    before = scene.peers["a"].known()
    assert [m.id for m in before] == ["b", "c"], "the dead are remembered"
    assert [m.id for m in scene.peers["a"].live()] == ["a", "c"]
    effects = scene.says("a", member("c", heartbeat=98), member("b", heartbeat=99))
    assert effects.count(PeerRecovered("b")) == 1
    assert [m.id for m in scene.peers["a"].live()] == ["a", "b", "c"]


def test_the_dead_are_dialled_for_ever_but_ever_more_rarely() -> None:
    scene = together("a", "b")
    scene.passes("a", 12.0)
    dials = [to(scene.passes("a", 60.0), Hello).count("b") for _ in range(5)]
    # The first ones come soon; later, waits of 8 s in the mean, between half of that and half more.
    assert dials[0] >= max(dials[1:]) and all(5 <= count <= 15 for count in dials[1:])


def test_many_dead_are_not_dialled_all_at_once() -> None:
    scene = together("a", *(f"p{index:02}" for index in range(20)))
    scene.passes("a", 10.0)
    dialled = Counter[str]()
    for _ in range(30):
        once = to(scene.passes("a", 1.0), Hello)
        assert len(once) <= 8
        dialled.update(once)
    assert len(dialled) == 20, "and nobody is forgotten"


def test_a_seed_that_does_not_answer_is_greeted_for_ever_but_ever_more_rarely() -> None:
    scene = Scene(BRIEF)
    scene.enter("a")
    scene.join("a", "b", "typo", founders=2)
    scene.introduce("b", "a", phase=Phase.SEEKING)
    scene.wait(0.2)
    scene.wake("a")
    assert scene.peers["a"].phase is Phase.TRAINING

    def greeted() -> int:
        scene.lines.clear()
        scene.passes("a", 60.0)
        return sum("greet typo" in line for line in scene.lines)

    # Three times in each try, or nothing would be sent on what the first of them opens.
    counts = [greeted() for _ in range(4)]
    assert all(3 * 4 <= count <= 3 * 15 for count in counts[1:])


def test_two_that_only_dial_out_are_never_written_to_one_another() -> None:
    scene = Scene(BRIEF)
    a = scene.enter("a", addresses=())
    scene.join("a")
    silent = member("c", addresses=())
    effects = scene.says("a", member("b"), silent)
    effects += scene.says("a", member("b", heartbeat=2), replace(silent, heartbeat=2))
    effects += scene.says("a", member("b", heartbeat=3), replace(silent, heartbeat=3))
    assert [m.id for m in a.live()] == ["a", "b", "c"]
    effects += scene.step("a") + scene.finish("a") + scene.passes("a", 60.0)
    assert "b" in to(effects, Hello) and "c" not in to(effects, Hello)
    assert PeerDied("c") in effects


@pytest.mark.parametrize("direct", [False, True])
def test_a_life_from_far_ahead_changes_nothing(direct: bool) -> None:
    scene = together("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    a = scene.peers["a"]
    account, known = replace(a.account), a.known()
    ahead = member("b", incarnation=FAR, heartbeat=999, step=10**6, phase=Phase.LEFT)
    if direct:
        effects = scene.says("a", ahead)
        assert [type(e) for e in effects] == [PeerRefused]
    else:
        effects = scene.says("a", member("c", heartbeat=99), ahead)
    assert not written(effects, Kind.WRITTEN_OFF)
    assert a.account.outstanding == account.outstanding and a.account.weight == account.weight
    assert [m for m in a.known() if m.id == "b"] == [m for m in known if m.id == "b"]
    assert a.clock.total < 10**6
    assert scene.receive(scene.letter("b", "a", Query(1))) != [], "the true one is listened to"


def test_a_referral_to_a_life_from_far_ahead_is_not_believed() -> None:
    scene = together("a", "b")
    scene.push("a", "b", 5)
    effects = scene.receive(scene.letter("b", "a", Refer((member("b", incarnation=FAR),))))
    assert effects == []


def test_a_later_life_that_can_be_writes_off_what_the_earlier_one_had() -> None:
    scene = together("a", "b")
    scene.push("a", "b", 5)
    effects = scene.says("a", member("b", incarnation=2))
    assert len(written(effects, Kind.WRITTEN_OFF)) == 1 and PeerMet("b") in effects


def test_one_that_seeks_learns_that_somebody_outlived_it() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b")
    effects = scene.says("a", member("b"), member("a", incarnation=5))
    assert StaleIncarnation(5) in effects and not of(effects, Halt)


def test_one_that_was_outlived_later_stops() -> None:
    scene = together("a", "b")
    effects = scene.says("a", member("b", heartbeat=99), member("a", incarnation=5))
    (halt,) = of(effects, Halt)
    assert StaleIncarnation(5) in effects
    assert halt.reason == ("another peer called a has started since: each needs a name of its own")


def test_one_that_was_outlived_gets_away_although_nobody_takes_its_word_any_more() -> None:
    """All answer its hellos, so that nobody ever seems dead, and none of them its questions."""
    scene = together("a", "b", "c")
    for id in "bc":
        scene.says(id, member("a", incarnation=5))
    scene.says("a", member("b", heartbeat=99), member("a", incarnation=5))
    scene.leave("a")
    for _ in range(60):
        scene.wait(1.0)
        for id in "abc":
            scene.wake(id)
        letters, scene.mail = list(scene.mail), type(scene.mail)()
        for letter in letters:
            if (letter.destination, letter.destination_incarnation) != ("a", 5):
                scene.receive(letter)
    assert scene.peers["a"].done


def test_a_member_tells_an_earlier_life_of_the_later_one() -> None:
    scene = together("a", "b")
    scene.says("b", member("a", incarnation=4))
    scene.mail.clear()
    effects = scene.says("b", member("a", incarnation=3), reply=True)
    ((answer, life),) = [
        (e.envelope.body, e.envelope.destination_incarnation)
        for e in effects
        if isinstance(e, Send)
    ]
    assert isinstance(answer, Hello) and life == 3 and not answer.reply
    assert [(m.id, m.incarnation) for m in answer.members] == [("b", 1), ("a", 4)]
    assert not scene.says("b", member("a", incarnation=3)), "unless it wants no answer"
    assert not scene.receive(scene.letter("a", "b", Query(1), incarnation=3))


def outlived_by_none() -> Scene:
    """A peer a that considers a life of b dead, after which b came back with a smaller number."""
    scene = together("a", "b")
    scene.says("a", member("b", incarnation=7))
    scene.push("a", "b", 5)
    scene.passes("a", 30.0)
    assert scene.peers["a"].account.outstanding["b", 7].stranded
    return scene


def comes_back(scene: Scene, heartbeat: int) -> list[Effect | Event]:
    """Let the life of b that has the smaller number say hello."""
    return scene.says("a", member("b", incarnation=3, heartbeat=heartbeat), reply=True)


def test_an_earlier_life_that_runs_while_the_later_one_is_dead_is_met_anew_after_a_while() -> None:
    """Its clock was ahead before, and it has lost its disk: so its number is smaller."""
    scene = outlived_by_none()
    for heartbeat in range(1, 12):
        effects = comes_back(scene, heartbeat)
        assert to(effects, Hello) == ["b"] and PeerMet("b") not in effects, "it is told so far"
        assert [m.id for m in scene.peers["a"].live()] == ["a"]
        scene.passes("a", 1.0)
    effects = comes_back(scene, 12)
    assert PeerMet("b") in effects and len(written(effects, Kind.WRITTEN_OFF)) == 1
    assert [(m.id, m.incarnation) for m in scene.peers["a"].live()] == [("a", 1), ("b", 3)]
    assert scene.receive(scene.letter("b", "a", Query(1), incarnation=3)), "it is listened to"
    effects = scene.says("a", member("b", incarnation=7, heartbeat=99))
    assert PeerMet("b") in effects, "a larger number is a later life as ever"
    assert not scene.receive(scene.letter("b", "a", Query(1), incarnation=3))


def test_messages_of_an_earlier_life_that_come_late_bring_it_not_back() -> None:
    scene = outlived_by_none()
    before = scene.peers["a"].known()
    for _ in range(20):  # the same one over and over
        comes_back(scene, 5)
        scene.passes("a", 1.0)
    for heartbeat in range(6, 20):  # of another life, many at once
        scene.says("a", member("b", incarnation=2, heartbeat=heartbeat))
    scene.receive(scene.letter("b", "a", Query(1), incarnation=3))
    assert scene.peers["a"].known() == before
    assert scene.peers["a"].account.outstanding["b", 7].stranded


def test_an_earlier_life_waits_again_where_the_later_one_has_spoken_in_between() -> None:
    scene = outlived_by_none()
    comes_back(scene, 1)
    scene.passes("a", 9.0)
    scene.says("a", member("b", incarnation=7, heartbeat=50))
    scene.passes("a", 30.0)
    assert PeerMet("b") not in comes_back(scene, 2)
    scene.passes("a", 11.0)
    assert PeerMet("b") in comes_back(scene, 3)


def test_nobody_brings_an_earlier_life_back_by_telling_of_it() -> None:
    scene = outlived_by_none()
    for heartbeat in range(1, 30):
        told = member("b", incarnation=3, heartbeat=heartbeat)
        scene.says("a", member("c", heartbeat=heartbeat), told)
        scene.passes("a", 1.0)
    assert [(m.id, m.incarnation) for m in scene.peers["a"].known()] == [("b", 7), ("c", 1)]


def test_a_peer_that_came_back_too_early_hears_of_its_later_life_and_joins_with_a_later_one() -> (
    None
):
    scene = together("b", "c")
    scene.says("b", member("a", incarnation=7))
    scene.enter("a", incarnation=3)
    effects = scene.join("a", "b")
    for _ in range(4):
        letters = [letter for letter in scene.mail if letter.destination in "ab"]
        scene.mail.clear()
        for letter in letters:
            effects += scene.receive(letter)
        scene.wait(0.2)
        effects += scene.wake("a")
    assert StaleIncarnation(7) in effects and scene.peers["a"].phase <= Phase.JOINING
    scene.mail.clear()
    scene.enter("a", incarnation=8)
    scene.join("a", "b")
    for _ in range(20):
        scene.wait(0.2)
        scene.wake("a")
        scene.deliver()
        for id in "abc":
            scene.step(id, trained=id != "a" or scene.peers["a"].phase is Phase.TRAINING)
    assert scene.peers["a"].phase is Phase.TRAINING


def test_all_that_are_remembered_are_the_peer_table() -> None:
    scene = together("a", "b", "c", "d")
    scene.says("a", member("d", heartbeat=99, phase=Phase.LEFT))
    for _ in range(20):
        scene.wait(1.0)
        scene.says("a", member("c", heartbeat=round(scene.now) + 50))
        scene.wake("a")
    a = scene.peers["a"]
    assert [m.id for m in a.live()] == ["a", "c"]
    assert [(m.id, m.addresses) for m in a.known()] == [("b", ("b",)), ("c", ("c",))]


def crowd(count: int) -> Scene:
    """A peer a that has met so many."""
    scene = Scene(BRIEF)
    scene.enter("a")
    scene.join("a")
    scene.says("a", *(member(f"p{index:03}") for index in range(count)))
    for index in range(count):
        scene.says("a", member(f"p{index:03}", heartbeat=2))
    scene.mail.clear()
    return scene


@pytest.mark.parametrize(("count", "told"), [(1, 1), (64, 64), (65, 64), (200, 64)])
def test_of_a_crowd_only_some_are_told_of_a_change_of_phase_at_once(count: int, told: int) -> None:
    scene = crowd(count)
    assert len(scene.peers["a"].live()) == 1 + count
    whom = to(scene.finish("a"), Hello)
    assert len(set(whom)) == len(whom) == told


def test_of_a_crowd_that_is_heard_of_nobody_is_spoken_to_at_once() -> None:
    for count, spoken_to in ((3, 3), (200, 0)):
        scene = crowd(count)
        new = [member(f"q{index}") for index in range(3)]
        effects = scene.says("a", member("p000", heartbeat=9), *new)
        assert len(of(effects, PeerMet)) == 3
        assert len(to(effects, Hello)) == spoken_to


def test_who_is_only_asked_after_tells_of_itself_alone() -> None:
    scene = together("a", "b", "c")
    for entries, told in (([member("b", heartbeat=50)], ["a"]), ([], ["a", "b", "c"])):
        body = hello(*(entries or (member("b", heartbeat=51), member("c"))), reply=True)
        (answer,) = scene.sent(scene.receive(scene.letter("b", "a", body)), Hello)
        assert [m.id for m in answer.members] == told
    first = scene.letter("d", "a", hello(member("d"), reply=True), to_incarnation=0)
    (answer,) = scene.sent(scene.receive(first), Hello)
    assert [m.id for m in answer.members] == ["a", "b", "c"], "a newcomer wants to know everybody"


def test_roots_of_another_swarm_are_none_of_ones_own() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b", founders=2)
    seeking = member("b", phase=Phase.SEEKING)
    scene.receive(scene.letter("b", "a", hello(seeking), swarm=OTHER_ANCHOR))
    for _ in range(4):
        scene.wait(1.0)
        scene.wake("a")
    assert scene.peers["a"].phase is Phase.TRAINING and scene.peers["a"].swarm == ANCHOR
