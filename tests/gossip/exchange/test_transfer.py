"""The table of incoming transfers: every pair of state and event, and that an inbox goes by it."""

import pytest

from rumor.gossip.exchange.transfer import (
    INCOMING_TRANSITIONS,
    IncomingEvent,
    IncomingState,
    IncomingTransfer,
)
from rumor.gossip.types import ShareId
from rumor.gossip.wire.messages import Offer

# By state, where each event of the enum leads, in its order: whole attach offer readable
# unreadable frame complete finite not-finite stalled restarted superseded refused taken.
# "-" is ignored, "!" cannot happen.
OUTCOMES = {
    "offered": "staged attaching arriving ! ! ! ! ! ! ! ! ! ! !",
    "attaching": "- - - staged arriving - ! - - decided decided decided decided !",
    "arriving": "- arriving arriving - - arriving staged - - decided decided decided decided !",
    "staged": "- - - - - - ! ready decided - - ! decided !",
    "ready": "- - - - - - ! - - - - ! decided decided",
    "decided": "! ! ! ! ! ! ! ! ! ! ! ! ! !",
}

CASES = [
    pytest.param(IncomingState[name.upper()], event, outcome, id=f"{name}-{event.name.lower()}")
    for name, row in OUTCOMES.items()
    for event, outcome in zip(IncomingEvent, row.split(), strict=True)
]


@pytest.mark.parametrize(("state", "event", "outcome"), CASES)
def test_each_event_has_the_outcome_that_is_written_here_or_cannot_happen(
    state: IncomingState, event: IncomingEvent, outcome: str
) -> None:
    offer = Offer(seq=1, escrow=1, size_bytes=64, epoch=0, round=0, note=0, step=0)
    transfer = IncomingTransfer(ShareId("a", 1, 1), offer, 0.0)
    transfer.state = state
    if outcome == "!":
        with pytest.raises(KeyError):
            transfer.on(event)
    else:
        assert transfer.on(event) == (outcome != "-")
    expected = state if outcome in "!-" else IncomingState[outcome.upper()]
    assert transfer.state is expected
    assert transfer.whole == (expected >= IncomingState.STAGED)


def test_only_a_share_that_is_there_and_sound_is_ever_taken() -> None:
    takers = {state for state, row in INCOMING_TRANSITIONS.items() if IncomingEvent.TAKEN in row}
    entries = {
        before
        for before, row in INCOMING_TRANSITIONS.items()
        if IncomingState.READY in row.values()
    }
    assert takers == {IncomingState.READY} and entries == {IncomingState.STAGED}


def test_the_test_knows_each_state() -> None:
    assert [name.upper() for name in OUTCOMES] == [state.name for state in IncomingState]
    assert set(INCOMING_TRANSITIONS) == set(IncomingState)
