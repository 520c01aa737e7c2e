"""A share as a rule sees it, and the terms that a rule can add up."""

from ..errors import LocalProtocolError
from ..types import PeerId, ShareId, SharePart, SnapshotId, frozen
from ..wire.formats import Form

__all__ = ["Kept", "Pushed", "Share", "Term"]


@frozen
class Share:
    """A complete share that waits for the rule's decision."""

    id: ShareId
    weight: int
    epoch: int
    round: int
    note: int
    step: int
    """Optimizer steps that its sender had taken."""
    form: Form = Form()
    is_finite: bool = True
    """True if all its values are finite; others reach only rules with fixed members."""

    @property
    def sender(self) -> PeerId:
        return self.id.sender

    def part(self, index: int) -> "Term":
        """Return one of the registers that it carries, as a term of `RuleContext.combine`."""
        if not 0 <= index < self.form.registers:
            last = self.form.registers - 1
            raise LocalProtocolError(
                f"{self.id} has no part {index}: its parts count from 0 to {last}"
            )
        return SharePart(self.id, index) if index else self


@frozen
class Kept:
    """A snapshot of a register that a rule keeps: see `RuleContext.keep`."""

    as_sent: SnapshotId
    """The snapshot, as a term of `RuleContext.combine`: the numbers as receivers read them."""
    form: Form


Term = str | Share | SharePart | SnapshotId
"""Terms of `RuleContext.combine`: a register, a share, a part of one, or `Kept.as_sent`."""

Pushed = str | tuple[str, ...] | Kept
"""Content of a share: a register, several, or a kept snapshot."""
