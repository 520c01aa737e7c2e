"""Who closes in good order: a leaver, too, waits for the escrow that can still be settled."""

import pytest

from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.protocol.state import State
from rumor.gossip.wire.messages import Phase
from rumor.sim.fuzz import CampaignConfig, run_campaign
from rumor.sim.fuzz.violation import LIVENESS


class Hasty(State):
    """As its departure sees it, a leaver has nothing under way."""

    __slots__ = ()

    def in_flight(self) -> int:
        """Nothing, once it leaves."""
        return 0 if self.table.phase is Phase.LEAVING else State.in_flight(self)


def abandon(protocol: Protocol) -> None:
    """Let it say goodbye as soon as it has pushed everything, whatever becomes of that."""
    setattr(protocol.state, "__class__", Hasty)  # noqa: B010


@pytest.mark.extended
def test_a_leaver_that_abandons_its_escrow_is_a_violation() -> None:
    config = CampaignConfig(seeds=tuple(range(50)), mutant=abandon, failures_max=1)
    (broken,) = run_campaign(config).failed
    assert broken.failure.invariant == LIVENESS
    assert "leaves on open escrow" in broken.failure.what
    assert broken.spec.attempt().failure is None
