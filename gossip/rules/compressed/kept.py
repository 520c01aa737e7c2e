"""Compressed shares that a rule keeps: all receivers and the sender count the same numbers."""

from ...protocol.context import RuleContext
from ...protocol.share import Kept, Share
from ..synchronous.rounds import Rounds

__all__ = ["KeptShares", "why_unlike"]


class KeptShares:
    """What a rule has copied out to send, each until nobody needs it any more."""

    def __init__(self) -> None:
        self._kept: list[Kept] = []

    @property
    def last(self) -> Kept:
        """What was sent in the latest round; there must have been one."""
        return self._kept[-1]

    def add(self, kept: Kept) -> Kept:
        """Note what is sent in a new round."""
        self._kept.append(kept)
        return kept

    def let_go(self, context: RuleContext, rounds: Rounds, *, reads_last: bool) -> None:
        """Keep only what is still to reach somebody, to be called after every step."""
        needed = self._kept[-1:] if reads_last else []
        for kept in self._kept:
            if kept not in needed and rounds.is_under_way(kept):
                needed.append(kept)
            elif kept not in needed:
                context.let_go(kept)
        self._kept = [kept for kept in self._kept if kept in needed]


def why_unlike(share: Share, ours: Kept, rule: str) -> str:
    """How a share shows that its sender has another rule or format, or nothing."""
    if not share.form.bare:
        return f"carries no difference, which {rule} needs: give all peers the same rule"
    wire, own = share.form.wire, ours.form.wire
    return f"is {wire}, and {own} here: give all peers the same wire" * (wire != own)
