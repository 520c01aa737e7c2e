"""The ledger, with one entry for every change of weight, and the accounts that follow from it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum

from ..errors import LocalProtocolError
from ..types import Incarnation, PeerId, frozen, frozen_keywords
from ..weight import shown

__all__ = ["NO_DECISION", "Account", "Audit", "Entry", "Kind", "Life", "Outstanding", "audit"]

Life = tuple[PeerId, Incarnation]


class Kind(StrEnum):
    """Kinds of change to some weight."""

    FOUNDED = "founded"
    """Created, by a founder."""
    PUSHED = "pushed"
    """Moved into escrow."""
    SETTLED = "settled"
    """The receiver accepted this much; the rest of the escrow was returned."""
    ACCEPTED = "accepted"
    """Taken from another peer's escrow; 0 if its share was refused or fenced."""
    STRANDED = "stranded"
    """The receiver is considered dead, so the fate of the escrow is unknown."""
    FOUND = "found"
    """The receiver of a stranded escrow was heard from again."""
    WRITTEN_OFF = "written-off"
    """The receiver's incarnation is over: the part that it had not accepted is burned."""
    BURNED = "burned"
    """Destroyed: a swarm was given up, or no peer was left to take the weight."""


# Bound once: up to Python 3.11, looking a member of an enum up costs more than a call.
_ACCEPTED, _PUSHED, _SETTLED = Kind.ACCEPTED, Kind.PUSHED, Kind.SETTLED
_FOUNDED, _BURNED = Kind.FOUNDED, Kind.BURNED

NO_DECISION = 0, 0
"""Default for a missing entry of `Account.decided`."""


@frozen
class Entry:
    """One line of a ledger; as an effect, append it before any later effect leaves the process."""

    kind: Kind
    weight: int
    peer: PeerId = ""
    incarnation: Incarnation = 0
    seq: int = 0
    shard: int = 0

    def __repr__(self) -> str:
        return shown(self, weight="units")


@dataclass(slots=True)
class Outstanding:
    """An escrow that is not settled."""

    seq: int
    escrow: int
    stranded: bool = False


@dataclass(slots=True)
class Account:
    """Weight that one incarnation of a peer holds of one shard, from its entries so far."""

    id: PeerId
    incarnation: Incarnation
    shard: int = 0
    founded: int = 0
    weight: int = 0
    burned: int = 0
    outstanding: dict[Life, Outstanding] = field(default_factory=dict)
    written_off: list[tuple[Life, Outstanding]] = field(default_factory=list)
    decided: dict[Life, tuple[int, int]] = field(default_factory=dict)
    """Last decision about each sender, as ``(seq, accepted)``."""

    @property
    def life(self) -> Life:
        return self.id, self.incarnation

    def apply(self, entry: Entry) -> Entry:
        """Apply *entry* and return it, or raise LocalProtocolError and stay as it was."""
        kind, weight, other = entry.kind, entry.weight, (entry.peer, entry.incarnation)
        if kind is _ACCEPTED:
            last = self.decided.get(other, NO_DECISION)[0]
            if weight < 0 or entry.seq <= last:
                raise LocalProtocolError(f"{entry}: decided already")
            self.weight += weight
            self.decided[other] = entry.seq, weight
        elif kind is _PUSHED:
            if not 0 <= weight <= self.weight:
                raise LocalProtocolError(f"{entry}: more than is held")
            if other in self.outstanding:
                raise LocalProtocolError(f"{entry}: an escrow is outstanding there")
            self.weight -= weight
            self.outstanding[other] = Outstanding(entry.seq, weight)
        elif kind is _FOUNDED:
            self.founded += weight
            self.weight += weight
        elif kind is _BURNED:
            if not 0 <= weight <= self.weight:
                raise LocalProtocolError(f"{entry}: more than is held")
            self.weight -= weight
            self.burned += weight
        else:
            escrow = self.outstanding.get(other)
            if escrow is None or escrow.seq != entry.seq:
                raise LocalProtocolError(f"{entry} names no outstanding escrow")
            if kind is _SETTLED:
                if not 0 <= weight <= escrow.escrow:
                    raise LocalProtocolError(f"{entry}: more than the escrow")
                self.weight += escrow.escrow - weight
                del self.outstanding[other]
            elif kind is Kind.WRITTEN_OFF:
                self.written_off.append((other, escrow))
                del self.outstanding[other]
            else:
                escrow.stranded = kind is Kind.STRANDED
        return entry


@frozen_keywords
class Audit:
    """Account of every founder's weight; each field is counted independently."""

    founded: int
    held: int
    """Weight of peers that are alive, or that ended properly."""
    in_flight: int
    """Weight in escrow of such peers, not accepted yet."""
    stranded: int
    """Weight in their escrow toward peers that are considered dead."""
    burned: int
    died: int
    """Lost with dead peers: their weight, and their escrow that was not accepted."""

    @property
    def balanced(self) -> bool:
        """True if no weight was lost or created (invariant I1)."""
        accounted = self.held + self.in_flight + self.stranded + self.burned + self.died
        return self.founded == accounted

    def __repr__(self) -> str:
        return shown(self, **{field.name: field.name for field in fields(self)})


def audit(accounts: Iterable[Account], dead: Collection[Life] = ()) -> Audit:
    """Account for all weight that was ever founded.

    The part of an escrow that no receiver has accepted is in flight, stranded, burned or dead.

    Args:
        accounts: One account for each shard of each incarnation of each peer, including dead ones.
        dead: Incarnations that ended without handing their weight on.
    """
    lives = {(account.life, account.shard): account for account in accounts}
    held = in_flight = stranded = burned = died = 0
    for account in lives.values():
        open_escrow = stuck_escrow = 0
        for receiver, escrow in account.outstanding.items():
            left = escrow.escrow - _accepted(lives, account, receiver, escrow.seq)
            if escrow.stranded:
                stuck_escrow += left
            else:
                open_escrow += left
        burned += account.burned + sum(
            escrow.escrow - _accepted(lives, account, receiver, escrow.seq)
            for receiver, escrow in account.written_off
        )
        if account.life in dead:
            died += account.weight + open_escrow + stuck_escrow
        else:
            held += account.weight
            in_flight += open_escrow
            stranded += stuck_escrow
    return Audit(
        founded=sum(account.founded for account in lives.values()),
        held=held,
        in_flight=in_flight,
        stranded=stranded,
        burned=burned,
        died=died,
    )


def _accepted(
    lives: dict[tuple[Life, int], Account], sender: Account, receiver: Life, seq: int
) -> int:
    theirs = lives.get((receiver, sender.shard))
    if theirs is None:
        return 0
    last, accepted = theirs.decided.get(sender.life, NO_DECISION)
    return accepted if last == seq else 0
