"""How long messages are on the wire, at once for those that name a thousand peers."""

from dataclasses import replace

from ..gossip import Envelope
from ..gossip.codec import encoded_bytes
from ..gossip.messages import Hello, Member

__all__ = ["Sizes"]

_KEPT_MAX = 1 << 17

# From so many elements on, msgpack writes the length of an array in two bytes more. (In four, from
# 65,536 on; no message names so many.)
_SHORT = 1 << 4


class Sizes:
    """Sizes of messages. An entry of a view travels from peer to peer: it is measured once."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._members: list[Member] = []

    def of(self, envelope: Envelope) -> int:
        """How many bytes a message has: `rumor.gossip.codec.encoded_bytes`, to the byte."""
        body = envelope.body
        if type(body) is not Hello:
            return encoded_bytes(envelope)
        members, sizes = body.members, self._sizes
        bare = encoded_bytes(replace(envelope, body=replace(body, members=())))
        try:
            entries = sum([sizes[id(member)] for member in members])
        except KeyError:
            if len(sizes) > _KEPT_MAX:
                sizes.clear()
                self._members.clear()
            entries = sum([sizes.get(id(member)) or self._measure(member) for member in members])
        return bare + _length_bytes(len(members)) + entries

    def _measure(self, member: Member) -> int:
        one, none = (
            encoded_bytes(_envelope(Hello(members=members, rooted=False, reply=False)))
            for members in ((member,), ())
        )
        # What is kept stays alive, so that no other object gets its number.
        self._members.append(member)
        self._sizes[id(member)] = one - none
        return one - none


def _envelope(body: Hello) -> Envelope:
    return Envelope(
        swarm=b"",
        schema=bytes(16),
        source="a",
        source_incarnation=1,
        destination="b",
        destination_incarnation=1,
        body=body,
    )


def _length_bytes(count: int) -> int:
    """Bytes of an array's length beyond the first."""
    return 0 if count < _SHORT else 2
