"""What holds on the ways between peers, from when it is imposed until it is lifted."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf, prod

__all__ = ["Condition", "Terms", "Ways", "between", "from_peer", "of_peer", "terms"]

Ways = Callable[[str, str], bool]
"""Whether something holds on the way from one peer to another."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Condition:
    """Something that holds on some ways, each way between two peers for itself."""

    ways: Ways
    """On which."""

    cut: bool = False
    """Nothing passes; what is sent waits, as in a network that loses each packet."""

    loss: float = 0.0
    """Probability for each message to be lost."""

    duplicate: float = 0.0
    """Probability for each message to come twice."""

    delay_s: float = 0.0
    """How much later all bytes come, seconds."""

    bytes_s: float = inf
    """How many bytes may pass in a second, all connections together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """All that holds on one way now, taken together; fields as in `Condition`."""

    cut: bool = False
    loss: float = 0.0
    duplicate: float = 0.0
    delay_s: float = 0.0
    bytes_s: float = inf


def terms(conditions: Iterable[Condition], sender: str, receiver: str) -> Terms:
    """Take together what holds on the way from one peer to another."""
    here = [condition for condition in conditions if condition.ways(sender, receiver)]
    return Terms(
        cut=any(condition.cut for condition in here),
        loss=1 - prod(1 - condition.loss for condition in here),
        duplicate=1 - prod(1 - condition.duplicate for condition in here),
        delay_s=sum(condition.delay_s for condition in here),
        bytes_s=min((condition.bytes_s for condition in here), default=inf),
    )


def of_peer(peer: str | None) -> Ways:
    """All ways to and from a peer; with None, all there are."""
    return lambda sender, receiver: peer is None or peer in (sender, receiver)


def from_peer(peer: str, to: str | None, *, one_way: bool) -> Ways:
    """The way from a peer to another (None: to all others), and back unless *one_way*."""

    def holds(sender: str, receiver: str) -> bool:
        there = sender == peer and to in (None, receiver)
        back = receiver == peer and to in (None, sender)
        return there or (back and not one_way)

    return holds


def between(groups: Sequence[Collection[str]]) -> Ways:
    """All ways from one group to another; peers that none names form one more group."""
    group_of = {peer: number for number, group in enumerate(groups) for peer in group}
    return lambda sender, receiver: group_of.get(sender) != group_of.get(receiver)
