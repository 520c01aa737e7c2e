"""The outbox follows the transition table for each pair of state and event."""

from pathlib import Path

import pytest

from rumor.gossip.effects.effect_log import EffectLog
from rumor.gossip.effects.effects import Effect, Release
from rumor.gossip.effects.events import Event
from rumor.gossip.effects.ledger import Account, Entry, Kind
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.exchange.outgoing import TRANSITIONS, Outbox
from rumor.gossip.exchange.transfer import EscrowEvent, EscrowState, SnapshotRefs
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Offer, Push

from ..scene import WIDE

HALF = ONE // 2

FINAL = (EscrowState.SETTLED, EscrowState.WRITTEN_OFF)

PAIRS = [(state, event) for state in EscrowState for event in EscrowEvent]


def label(member: EscrowState | EscrowEvent) -> str:
    return member.name.lower().replace("_", "-")


class Rig:
    """An outbox that holds a founder's weight, with half of it in flight to b in a given state."""

    def __init__(self, state: EscrowState) -> None:
        self.account = Account("a", 1)
        self.log = EffectLog(self.account, b"schema", b"swarm", [])
        self.log.record(Entry(Kind.FOUNDED, ONE))
        self.snapshot_refs = SnapshotRefs(self.log)
        self.outbox = Outbox(WIDE, self.log, {}, self.snapshot_refs)
        self._push(state)
        self.transfer = self.outbox.transfers["b"]
        for event, amount in {
            EscrowState.STREAMING: [(EscrowEvent.GRANT, 16)],
            EscrowState.STRANDED: [(EscrowEvent.DIED, 0)],
            EscrowState.LENT_STRANDED: [(EscrowEvent.DIED, 0)],
        }.get(state, []):
            self.outbox._on(self.transfer, event, 0.0, amount)
        if state in FINAL:
            self.transfer.state = state  # no share stays in this state
        assert self.transfer.state is state
        self.take()

    def _push(self, state: EscrowState) -> None:
        in_frames = {EscrowState.OFFERED, EscrowState.STREAMING}
        lent = state in (EscrowState.LENT, EscrowState.LENT_STRANDED)
        kind = Offer if lent or state in in_frames else Push
        offer = kind(seq=1, escrow=HALF, size_bytes=64, epoch=0, round=0, note=0, step=0)
        self.outbox.push("b", 1, offer, 7, 0.0, shown=lent)

    def fire(self, event: EscrowEvent) -> None:
        """Apply an event: a GRANT allows two more frames, an ACK accepts nothing."""
        amount = self.transfer.sent_bytes + 32 if event is EscrowEvent.GRANT else 0
        self.outbox._on(self.transfer, event, 1.0, amount)

    def take(self) -> list[Effect | Event]:
        self.snapshot_refs.release_unread()
        taken = [*self.log.effects]
        self.log.effects.clear()
        return taken

    def require_consistent(self) -> None:
        """Check that the state agrees with outbox, account and snapshot references."""
        state, left = self.transfer.state, self.account.outstanding.get(("b", 1))
        stranded = state in (EscrowState.STRANDED, EscrowState.LENT_STRANDED)
        assert (left is None) is (state in FINAL) is not ("b" in self.outbox.transfers)
        assert left is None or left.stranded is stranded
        assert self.transfer.uses_credit is not stranded
        assert self.transfer.snapshot == 0 or state not in FINAL
        held = self.account.weight + (0 if left is None else left.escrow)
        assert held == ONE - HALF * (state is EscrowState.WRITTEN_OFF)


@pytest.mark.parametrize(
    ("state", "event"), PAIRS, ids=[f"{label(s)}-{label(e)}" for s, e in PAIRS]
)
def test_each_event_follows_the_transition_table(state: EscrowState, event: EscrowEvent) -> None:
    rig = Rig(state)
    if (state, event) not in TRANSITIONS:
        with pytest.raises(KeyError):
            rig.fire(event)
        assert rig.transfer.state is state
        return
    step, deadline_s = TRANSITIONS[state, event], rig.transfer.deadline_s
    rig.fire(event)
    rig.require_consistent()
    assert rig.transfer.state is (state if step is None else step[1])
    if step is None:
        assert rig.take() == [] and rig.transfer.deadline_s == deadline_s


@pytest.mark.parametrize("state", [s for s in EscrowState if (s, EscrowEvent.ACK) in TRANSITIONS])
def test_an_impossible_ack_changes_nothing(state: EscrowState) -> None:
    rig = Rig(state)
    before_s = rig.transfer.deadline_s
    with pytest.raises(RemoteProtocolError, match="more than was sent"):
        rig.outbox._on(rig.transfer, EscrowEvent.ACK, 1.0, HALF + 1)
    assert rig.transfer.state is state
    assert rig.take() == [] and rig.transfer.deadline_s == before_s


@pytest.mark.parametrize("end", [EscrowEvent.ACK, EscrowEvent.LATER_INCARNATION])
def test_a_snapshot_is_released_when_its_share_is_closed(end: EscrowEvent) -> None:
    rig = Rig(EscrowState.LENT)
    rig.fire(end)
    effects = rig.take()
    assert effects[-1] == Release(7) and isinstance(effects[0], Entry)


def diagram() -> str:
    """Draw the table as a Mermaid state diagram, for docs/explanation/protocol.md."""
    arrows: dict[tuple[EscrowState, EscrowState], list[EscrowEvent]] = {}
    for (state, event), leads_to in TRANSITIONS.items():
        if leads_to is not None:
            arrows.setdefault((state, leads_to[1]), []).append(event)
    lines = ["stateDiagram-v2"]
    for first in (EscrowState.SENT, EscrowState.LENT, EscrowState.OFFERED):
        lines.append(f"    [*] --> {first.name}")
    for (state, target), events in arrows.items():
        labels = ", ".join([event.name.lower().replace("_", " ") for event in sorted(events)])
        lines.append(f"    {state.name} --> {target.name}: {labels}")
    lines += [f"    {state.name} --> [*]" for state in FINAL]
    return "\n".join(lines)


def test_the_protocol_page_shows_the_transition_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "explanation" / "protocol.md"
    assert f"```mermaid\n{diagram()}\n```" in page.read_text()
