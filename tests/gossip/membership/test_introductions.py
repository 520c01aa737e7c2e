"""Those of whom others tell are dialled a few at a time: whoever names them may make them up."""

from collections.abc import Iterable

import pytest

from rumor.gossip import Phase
from rumor.gossip.effects.effects import Effect, Meet, Part, Send
from rumor.gossip.effects.events import Event, PeerDied
from rumor.gossip.membership.dialing import UNKNOWN_MAX, Introductions
from rumor.gossip.protocol import anti_entropy
from rumor.gossip.wire.messages import Hello

from ..scene import OTHER_ANCHOR, Scene
from .test_swarm_steps import hello, member, tells, together

NAMES = tuple(f"n{index:02}" for index in range(3 * UNKNOWN_MAX))


def met(effects: Iterable[Effect | Event]) -> list[str]:
    return [effect.peer for effect in effects if isinstance(effect, Meet)]


def parted(effects: Iterable[Effect | Event]) -> list[str]:
    return [effect.peer for effect in effects if isinstance(effect, Part)]


def greeted(effects: Iterable[Effect | Event]) -> list[str]:
    return [
        effect.envelope.destination
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.envelope.body, Hello)
    ]


def told(count: int = len(NAMES)) -> tuple[Scene, list[Effect | Event]]:
    """A member that a neighbor has told of so many others, and what it did."""
    scene = together("a", "b")
    return scene, tells(scene, "a", member("b", heartbeat=9), *map(member, NAMES[:count]))


def test_as_many_as_answer_at_once_are_dialled_at_once() -> None:
    _, effects = told(UNKNOWN_MAX)
    assert met(effects) == list(NAMES[:UNKNOWN_MAX]) == greeted(effects)


def test_of_more_the_first_few_are_dialled_and_the_rest_cannot_be_met() -> None:
    scene, effects = told()
    assert met(effects) == list(NAMES[:UNKNOWN_MAX]) == greeted(effects)
    table = scene.peers["a"]._state.table
    assert not table.is_reachable(NAMES[-1], scene.now)
    assert table.is_reachable(NAMES[0], scene.now)


def test_whoever_answers_makes_room_for_the_next() -> None:
    scene, _ = told()
    effects = tells(scene, "a", member(NAMES[0], heartbeat=2))
    assert [name for name in met(effects) if name != NAMES[0]] == [NAMES[UNKNOWN_MAX]]
    assert NAMES[UNKNOWN_MAX] in greeted(effects)


def test_one_that_speaks_before_its_turn_is_met_at_once() -> None:
    scene, _ = told()
    effects = tells(scene, "a", member(NAMES[-1], heartbeat=2))
    assert met(effects)[0] == NAMES[-1]
    assert scene.peers["a"]._state.table.is_reachable(NAMES[-1], scene.now)


def test_those_who_do_not_answer_give_way_first_to_whom_a_rule_asks_for() -> None:
    scene, _ = told()
    wanted = NAMES[-1]
    for _ in range(5):
        assert not scene.peers["a"]._state.table.is_reachable(wanted, scene.now)
    effects: list[Effect | Event] = []
    for _ in range(7):
        scene.wait(1.0)
        effects += scene.wake("a")
    assert set(parted(effects)) == set(NAMES[:UNKNOWN_MAX])
    assert met(effects)[0] == wanted and len(met(effects)) == UNKNOWN_MAX


def test_where_nobody_else_waits_all_stay_open() -> None:
    scene, _ = told(UNKNOWN_MAX)
    effects: list[Effect | Event] = []
    for _ in range(8):
        scene.wait(1.0)
        effects += scene.wake("a")
    assert parted(effects) == []


def test_what_others_say_again_changes_nothing_about_whose_turn_it_is() -> None:
    scene, _ = told()
    moved = [member(name, heartbeat=2, addresses=("elsewhere",)) for name in NAMES]
    effects = tells(scene, "a", member("b", heartbeat=10), *moved)
    assert met(effects) == list(NAMES[:UNKNOWN_MAX])


def test_one_of_a_crowd_that_answers_makes_room_at_the_next_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(anti_entropy, "_TOLD_MAX", 4)
    scene, effects = told()
    assert len(greeted(effects)) == 2, "until there are more than that"
    assert met(tells(scene, "a", member(NAMES[0], heartbeat=2))) == []
    scene.wait(1.0)
    assert met(scene.wake("a")) == [NAMES[UNKNOWN_MAX]]


def test_the_dead_who_were_never_dialled_have_no_socket_to_keep() -> None:
    scene, _ = told()
    for heartbeat in (2, 3):
        others = [member(name, heartbeat=heartbeat) for name in NAMES]
        tells(scene, "a", member("b", heartbeat=10 + heartbeat), *others)
    effects: list[Effect | Event] = []
    for _ in range(12):
        scene.wait(1.0)
        effects += scene.wake("a")
    dead = [effect.peer for effect in effects if isinstance(effect, PeerDied)]
    assert NAMES[-1] in dead and NAMES[-1] in parted(effects)


def test_of_another_swarm_nobody_waits_any_more() -> None:
    scene, _ = told()
    protocol = scene.peers["a"]
    protocol._state.rooted = True
    for name in (NAMES[0], NAMES[-1]):
        other = hello(member(name, heartbeat=2))
        scene.receive(scene.letter(name, "a", other, swarm=OTHER_ANCHOR))
    assert NAMES[-1] not in protocol._state.table.unmet
    scene.wait(1.0)
    assert met(scene.wake("a")) == [NAMES[UNKNOWN_MAX]]


def test_who_is_forgotten_is_dialled_no_more() -> None:
    introductions = Introductions({})
    assert not introductions.puts_off("x") and introductions.concerns("x")
    assert introductions.tick(lambda peer: False) == [] and not introductions.concerns("x")
    assert introductions.forget("x") is False


def test_a_newcomer_hears_of_all_but_asks_only_those_it_has_dialled() -> None:
    scene = Scene()
    scene.enter("z")
    scene.join("z", "seed")
    effects = tells(scene, "z", member("b"), *map(member, NAMES))
    assert len(scene.peers["z"]._state.table) == 2 + len(NAMES)
    assert met(effects) == ["b", *NAMES[:UNKNOWN_MAX]]
    assert all(m.phase is Phase.TRAINING for m in scene.peers["z"].known())
