"""Shares toward silent peers use up no credit, long before they are considered dead."""

import pytest

from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.state import State
from rumor.gossip.wire.messages import Ack, Pending, Push

from ..scene import Scene, to


def unanswered() -> Scene:
    """Both credits of a are with b and c, which do not answer; d would."""
    scene = Scene().founded(*"abcd")
    scene.push("a", "bc")
    scene.mail.clear()
    return scene


def credit_used(state: State) -> int:
    transfers = [t for each in state.shard_states for t in each.outbox.transfers.values()]
    return sum([transfer.uses_credit for transfer in transfers])


def asks_again(scene: Scene) -> None:
    scene.passes("a", 8.0)
    scene.mail.clear()


def test_credit_comes_back_when_two_questions_were_not_answered() -> None:
    scene = unanswered()
    skipped = scene.act("a", RuleContext.push_half)
    assert PushSkipped("no neighbor free") in skipped
    asks_again(scene)
    assert to(scene.act("a", RuleContext.push_half), Push) == ["d"]
    assert len(scene.peers["a"].account.outstanding) == 3, "what they owe stays open"


@pytest.mark.parametrize("answer", [Pending(1), Ack(1, 0)])
def test_one_that_answers_after_all_counts_again(answer: Pending | Ack) -> None:
    scene = unanswered()
    asks_again(scene)
    state = scene.peers["a"].state
    assert (state.in_flight(), credit_used(state)) == (2, 0)
    scene.receive(scene.letter("b", "a", answer))
    still_open = isinstance(answer, Pending)
    assert (state.in_flight(), credit_used(state)) == (1 + still_open, int(still_open))


def test_death_and_return_leave_the_count_right() -> None:
    scene = unanswered()
    scene.passes("a", 60.0)
    state = scene.peers["a"].state
    assert (state.in_flight(), credit_used(state)) == (0, 0)
    scene.receive(scene.letter("b", "a", Pending(1)))
    assert state.in_flight() == 1 and credit_used(state) in (0, 1)
    scene.receive(scene.letter("b", "a", Ack(1, 5)))
    assert (state.in_flight(), credit_used(state)) == (0, 0)
