"""A share that has come or is to go, as a rule sees it, and what a rule can add up."""

from ..errors import LocalProtocolError
from ..exchange.transfer import IncomingTransfer
from ..types import PeerId, ShareId, SharePart, SnapshotId, frozen
from ..wire.formats import Form

__all__ = ["Kept", "Pushed", "Share", "Term"]


@frozen
class Share:
    """A share that has come whole and waits for the rule's decision."""

    id: ShareId
    weight: int
    epoch: int
    round: int
    note: int
    step: int
    """Optimizer steps that its sender had taken."""
    form: Form = Form()
    is_finite: bool = True
    """Whether all its values are numbers: it may be mixed or combined. Others reach rules with
    `Requirements.fixed_members` alone."""

    @classmethod
    def of(cls, transfer: IncomingTransfer) -> "Share":
        """What has come, as a rule sees it."""
        offer = transfer.offer
        return cls(
            transfer.id,
            offer.escrow,
            offer.epoch,
            offer.round,
            offer.note,
            offer.step,
            offer.form,
            transfer.is_finite,
        )

    @property
    def sender(self) -> PeerId:
        return self.id.sender

    def part(self, index: int) -> "Term":
        """One of the registers that it carries, as a term of `RuleContext.combine`."""
        if not 0 <= index < self.form.registers:
            last = self.form.registers - 1
            raise LocalProtocolError(
                f"{self.id} has no part {index}: its parts count from 0 to {last}"
            )
        return SharePart(self.id, index) if index else self


@frozen
class Kept:
    """What was copied out of a register once, and is kept: see `RuleContext.keep`."""

    as_sent: SnapshotId
    """As a term of `RuleContext.combine`: the numbers as receivers read them, rounding included."""
    form: Form


Term = str | Share | SharePart | SnapshotId
"""What `RuleContext.combine` adds up: a register, a share, a part of one of several, or
`Kept.as_sent`."""

Pushed = str | tuple[str, ...] | Kept
"""What a share is made of: a register, several, or what was copied out of one and is kept."""
