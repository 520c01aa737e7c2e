"""Who can exchange at all, where some peers only dial out.

A peer without an address is reached on the connections that it opened itself, so two of them can
never reach each other. A link of the graph between two such peers is led over a third one that can
be dialled: both take it for their neighbor, and it takes them for its own, so that what one
gives away can come back. Which one that is follows from the sorted view alone, as the graph does.
"""

from collections.abc import Callable, Sequence, Set

from .messages import PeerId

__all__ = ["pair"]


def pair(
    neighbors: Callable[[PeerId], Sequence[PeerId]],
    peer: PeerId,
    members: Sequence[PeerId],
    outward: Set[PeerId],
) -> tuple[PeerId, ...]:
    """Whom a peer may push to, so that no two that only dial out are paired.

    Args:
        neighbors: The graph's neighbors of a member.
        peer: Whose neighbors.
        members: Everybody in the graph, sorted.
        outward: Those who only dial out.

    Returns:
        Its neighbors, in order of first mention; none where nobody can be dialled.

    >>> ring = {"a": "bd", "b": "ac", "c": "bd", "d": "ca"}
    >>> pair(ring.__getitem__, "a", "abcd", {"a", "b", "c"})
    ('d',)
    >>> pair(ring.__getitem__, "d", "abcd", {"a", "b", "c"})
    ('c', 'a', 'b')
    """
    own = neighbors(peer)
    if len(outward) < 2:
        return tuple(own)
    relays = [member for member in members if member not in outward]
    if not relays:
        return ()
    place = {member: index for index, member in enumerate(members)}

    def relay(one: PeerId, other: PeerId) -> PeerId:
        low, high = sorted((place[one], place[other]))
        # Neighbors on a ring lie 1 apart, leaves of a star have one place in common: with a factor
        # next to a prime, both spread evenly over any number of relays that there can be.
        return relays[(1_000_002 * low + high) % len(relays)]

    if peer in outward:
        led = [relay(peer, other) if other in outward else other for other in own]
        return tuple(dict.fromkeys(led))
    served = [
        end
        for one in members
        if one in outward
        for other in neighbors(one)
        if other in outward and relay(one, other) == peer
        for end in (one, other)
    ]
    return tuple(dict.fromkeys([*own, *served]))
