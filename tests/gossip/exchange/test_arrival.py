"""What the arrival's table says of each pair of state and event, and that an inbox goes by it."""

import pytest

from rumor.gossip.effects.effects import ShareId
from rumor.gossip.exchange.transfer import ARRIVALS, ArrivalEvent, ArrivalState, IncomingTransfer
from rumor.gossip.wire.messages import Offer

# By state, where each event of the enum leads, in its order: whole attach offer readable
# unreadable frame end complete finite not-finite stalled restarted superseded refused taken.
# "-" is ignored, "!" cannot happen.
OUTCOMES = {
    "offered": "staged attaching arriving ! ! ! ! ! ! ! ! ! ! ! !",
    "attaching": "- - - staged arriving - - ! - - decided decided decided decided !",
    "arriving": "- arriving arriving - - arriving ended ! - - decided decided decided decided !",
    "ended": "- - - - - ended - staged - - decided decided decided decided !",
    "staged": "- - - - - - - ! ready decided - - ! decided !",
    "ready": "- - - - - - - ! - - - - ! decided decided",
    "decided": "! ! ! ! ! ! ! ! ! ! ! ! ! ! !",
}

CASES = [
    pytest.param(ArrivalState[name.upper()], event, outcome, id=f"{name}-{event.name.lower()}")
    for name, row in OUTCOMES.items()
    for event, outcome in zip(ArrivalEvent, row.split(), strict=True)
]


@pytest.mark.parametrize(("state", "event", "outcome"), CASES)
def test_each_event_has_the_outcome_that_is_written_here_or_cannot_happen(
    state: ArrivalState, event: ArrivalEvent, outcome: str
) -> None:
    offer = Offer(seq=1, escrow=1, size_bytes=64, epoch=0, round=0, note=0, step=0)
    arrival = IncomingTransfer(ShareId("a", 1, 1), offer, 0.0)
    arrival.state = state
    if outcome == "!":
        with pytest.raises(KeyError):
            arrival.on(event)
    else:
        assert arrival.on(event) == (outcome != "-")
    expected = state if outcome in "!-" else ArrivalState[outcome.upper()]
    assert arrival.state is expected
    assert arrival.whole == (expected >= ArrivalState.STAGED)


def test_only_a_share_that_is_there_and_sound_is_ever_taken() -> None:
    takers = {state for state, row in ARRIVALS.items() if ArrivalEvent.TAKEN in row}
    entries = {before for before, row in ARRIVALS.items() if ArrivalState.READY in row.values()}
    assert takers == {ArrivalState.READY} and entries == {ArrivalState.STAGED}


def test_the_test_knows_each_state() -> None:
    assert [name.upper() for name in OUTCOMES] == [state.name for state in ArrivalState]
    assert set(ARRIVALS) == set(ArrivalState)
