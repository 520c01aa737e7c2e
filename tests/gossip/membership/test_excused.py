"""Shares toward silent peers use up no credit, long before they are considered dead."""

import pytest

from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Pending, Push

from ..scene import Scene


def unanswered() -> Scene:
    """Both credits of a are with b and c, which do not answer; d would."""
    scene = Scene()
    rule = GoSGD(0.0)
    scene.founded(*"abcd", rules={"a": rule} | {id: GoSGD(0.0) for id in "bcd"})
    rule.p = 1.0
    for silent in ("b", "c"):
        only(scene, silent)
        (push, *_) = [e for e in scene.mail if isinstance(e.body, Push)]
        assert push.destination == silent
        scene.mail.clear()
    only(scene, "d")
    return scene


def only(scene: Scene, peer: str) -> list[object]:
    """Let a take a turn in which one peer is its only neighbor."""
    scene.peers["a"]._state.neighbors = lambda live, me, round: (peer,)
    return list(scene.step("a"))


def asks_again(scene: Scene) -> None:
    for _ in range(8):
        scene.wait(1.0)
        scene.wake("a")
    scene.mail.clear()


def test_credit_comes_back_when_two_questions_were_not_answered() -> None:
    scene = unanswered()
    assert PushSkipped("no neighbor free") in only(scene, "d")
    asks_again(scene)
    only(scene, "d")
    assert [e.destination for e in scene.mail if isinstance(e.body, Push)] == ["d"]
    assert len(scene.peers["a"].account.outstanding) == 3, "what they owe stays open"


@pytest.mark.parametrize("answer", [Pending(1), Ack(1, 0)])
def test_one_that_answers_after_all_counts_again(answer: Pending | Ack) -> None:
    scene = unanswered()
    asks_again(scene)
    state = scene.peers["a"]._state
    assert (state.in_flight(), state.credit_used()) == (2, 0)
    scene.receive(scene.letter("b", "a", answer))
    still_open = isinstance(answer, Pending)
    assert (state.in_flight(), state.credit_used()) == (1 + still_open, int(still_open))


def test_death_and_return_leave_the_count_right() -> None:
    scene = unanswered()
    for _ in range(60):
        scene.wait(1.0)
        scene.wake("a")
    state = scene.peers["a"]._state
    assert (state.in_flight(), state.credit_used()) == (0, 0)
    scene.receive(scene.letter("b", "a", Pending(1)))
    assert state.in_flight() == 1 and state.credit_used() in (0, 1)
    scene.receive(scene.letter("b", "a", Ack(1, ONE // 2)))
    assert (state.in_flight(), state.credit_used()) == (0, 0)
