"""What is signed about weight: a sender's *promise* on a link, and its receiver's *receipt* of it.

All figures are totals that only ever grow, so that the latest of a link says all that those before
it said. A *link* leads from one incarnation of a peer to one incarnation of another.
"""

from typing import NamedTuple, Protocol

from ..types import Incarnation, PeerId, frozen

__all__ = ["Keys", "Life", "Link", "Promise", "Receipt", "Statement", "signer_of"]

SIGNATURE_BYTES = 64


class Life(NamedTuple):
    """One incarnation of a peer."""

    peer: PeerId
    incarnation: Incarnation


class Link(NamedTuple):
    """From whom to whom weight goes."""

    sender: Life
    receiver: Life


@frozen
class Promise:
    """The sender's word on how much it has sent. All weights are in grains, all shards together."""

    link: Link
    number: int
    """Counts the promises of the sender, on all of its links together, from 1."""
    offered: int
    """What it has sent on this link so far, returned or not, this share included."""
    spent: int
    """What it has sent on all of its links so far, likewise."""
    signature: bytes = b""

    def signed(self, swarm: bytes) -> bytes:
        """The bytes under the signature.

        Args:
            swarm: Hash of the swarm's anchor: weight of another swarm counts for nothing here.
        """
        figures = (self.number, self.offered, self.spent)
        return _text("promise", swarm, self.link, figures)


@frozen
class Receipt:
    """The receiver's word on a promise: so much is decided, and so much of that was accepted."""

    promise: Promise
    decided: int
    """What it has decided of all that was offered on this link; never more than that."""
    accepted: int
    """How much of that it has taken; the rest is the sender's again."""
    signature: bytes = b""

    def signed(self, swarm: bytes) -> bytes:
        """The bytes under the signature; see `Promise.signed`."""
        figures = (self.promise.number, self.promise.offered, self.decided, self.accepted)
        return _text("receipt", swarm, self.promise.link, figures)

    @property
    def returned(self) -> int:
        """What is the sender's again."""
        return self.decided - self.accepted


Statement = Promise | Receipt


class Keys(Protocol):
    """Signs for one peer, and knows the public keys of all."""

    def sign(self, signed: bytes) -> bytes:
        """This peer's signature, 64 bytes."""

    def verify(self, peer: PeerId, signed: bytes, signature: bytes) -> bool:
        """Whether *peer* signed some bytes."""


def signer_of(statement: Statement) -> Life:
    """Whose word it is."""
    if isinstance(statement, Promise):
        return statement.link.sender
    return statement.promise.link.receiver


def _text(kind: str, swarm: bytes, link: Link, figures: tuple[int, ...]) -> bytes:
    # Names are printable, so that none of them holds a line break.
    (sender, sender_life), (receiver, receiver_life) = link
    numbers = "\n".join([f"{figure:x}" for figure in figures])
    head = f"rumor {kind} 1\n{swarm.hex()}\n{sender}\n{sender_life}\n{receiver}\n{receiver_life}\n"
    return f"{head}{numbers}".encode()
