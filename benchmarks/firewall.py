"""A cut that one process makes by itself: what it would send to some peers is dropped."""

from collections.abc import Collection, Sequence

from ..gossip.codec import Buffer
from ..gossip.transport import Transport

__all__ = ["Firewall"]


class Firewall:
    """Stands before the transport of this process's peer, which must not have been made yet.

    A message that it drops counts as sent, as one that a network swallows does. A link is cut where
    both ends drop.
    """

    def __init__(self) -> None:
        self._blocked: frozenset[str] = frozenset()
        self._addresses: frozenset[str] = frozenset()
        # A peer makes its transport itself; what goes out of it can be seen here only.
        send, greet = Transport.send, Transport.greet

        def guarded_send(
            transport: Transport, peer: str, parts: Sequence[Buffer], *, bulk: bool
        ) -> bool:
            return peer in self._blocked or send(transport, peer, parts, bulk=bulk)

        def guarded_greet(transport: Transport, address: str, parts: Sequence[Buffer]) -> bool:
            return address in self._addresses or greet(transport, address, parts)

        Transport.send = guarded_send  # type: ignore[assignment,method-assign]
        Transport.greet = guarded_greet  # type: ignore[assignment,method-assign]

    def block(self, peers: Collection[str], addresses: Collection[str]) -> None:
        """Drop what goes to these peers from now on, and to nobody else.

        Args:
            peers: Their ids.
            addresses: Where they listen: a stranger's greeting goes to an address.
        """
        self._blocked, self._addresses = frozenset(peers), frozenset(addresses)
