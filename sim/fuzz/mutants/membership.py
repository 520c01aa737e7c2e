"""Bugs in who is there: joining, leaving, the member table, and the clock of all steps.

Each changes a single protocol object, as if its code had been written wrong.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ....gossip import Member, PeerId, Phase, Protocol
from ....gossip.effects.effects import Part
from ....gossip.effects.events import PeerDied
from ....gossip.wire.messages import Envelope
from ..trial import Mutant
from .exchange import patch

__all__ = ["MEMBERSHIP"]


def _never_dead(protocol: Protocol) -> None:
    """Nobody is ever considered dead."""
    table = protocol._state.table

    def tick(look: Callable[..., Iterator[Any]], now: float) -> Iterator[Any]:
        for change in look(now):
            if type(change) is PeerDied:
                table._others[change.peer].alive = True  # type: ignore[union-attr]
            else:
                yield change

    patch(table, "tick", tick)


def _dead_for_ever(protocol: Protocol) -> None:
    """One that was considered dead does not come back to life."""

    def recover(revive: Callable[..., None], known: Any) -> None:
        if known.alive:
            revive(known)

    patch(protocol._state.table, "_recover", recover)


def _dead_not_dialled(protocol: Protocol) -> None:
    """Nobody who is considered dead is ever asked again, at no address."""

    def greet_seeds(greet: Callable[..., None], now: float) -> None:
        if protocol.phase <= Phase.JOINING:
            greet(now)

    patch(protocol._membership._backoff, "due", lambda due, *rest: [])
    patch(protocol._joining, "greet_seeds", greet_seeds)


def _later_life_ignored(protocol: Protocol) -> None:
    """The next life of a peer that is known is taken for the last one."""
    table = protocol._state.table

    def admit(take: Callable[..., Iterator[Any]], member: Member, now: float, **more: Any) -> Any:
        return () if table.is_known(member.id) else take(member, now, **more)

    patch(table, "_admit", admit)


def _old_addressee(protocol: Protocol) -> None:
    """What was meant for an earlier life is taken in by the next one."""
    patch(protocol._filter, "_is_addressed_here", lambda asked, envelope: True)


def _any_swarm(protocol: Protocol) -> None:
    """Shares of another swarm are let in."""

    def check(asked: Callable[..., bool], envelope: Envelope, now: float) -> bool:
        return bool(protocol.swarm) or asked(envelope, now)

    patch(protocol._filter, "_is_of_my_swarm", check)


def _no_tombstones(protocol: Protocol) -> None:
    """Who has left is forgotten at once, and believed in when others still tell of it."""
    table: Any = protocol._state.table

    def tick(look: Callable[..., Iterator[Any]], now: float) -> Iterator[Any]:
        yield from look(now)
        left = [peer for peer, known in table._others.items() if known.member.phase is Phase.LEFT]
        for peer in left:
            table.disown(peer)
            yield Part(peer)

    def admit(take: Callable[..., Iterator[Any]], member: Member, now: float, **_: Any) -> Any:
        return take(member, now, direct=True)

    patch(table, "tick", tick)
    patch(table, "_admit", admit)


def _asks_once(protocol: Protocol) -> None:
    """A newcomer whose donor is lost asks no other."""
    joining = protocol._joining

    def ask(choose: Callable[..., None], donors: Any, now: float) -> None:
        if joining._donor is None:
            choose(donors, now)

    patch(joining, "_ask", ask)


def _hasty_leave(protocol: Protocol) -> None:
    """A leaver goes before it knows what became of its shares."""
    leaving = protocol._leaving

    def advance(go_on: Callable[..., None], now: float) -> None:
        go_on(now)
        if protocol.phase is Phase.LEAVING and not protocol.weight:
            leaving._go()

    patch(leaving, "advance", advance)


def _leaver_keeps_weight(protocol: Protocol) -> None:
    """A leaver that finds no heir goes with its weight."""
    leaving = protocol._leaving

    def hand_on(push: Callable[..., None], now: float) -> None:
        if any(leaving._heirs()):
            push(now)
        elif protocol.phase is Phase.LEAVING:
            leaving._go()

    patch(leaving, "_hand_on", hand_on)


def _leaver_lets_in(protocol: Protocol) -> None:
    """One that leaves goes on to let shares in."""
    for shard_state in protocol._state.shard_states:
        patch(
            shard_state.inbox,
            "_validate",
            lambda asked, share, offer: (
                "" if protocol.phase is Phase.LEAVING else asked(share, offer)
            ),
        )


def _steps_added(protocol: Protocol) -> None:
    """Steps of others are added up, where the larger number counts."""
    clock = protocol._state.table.clock

    def merge(take: Callable[..., None], peer: PeerId, steps: int) -> None:
        before = clock.rows().get(peer, 0)
        take(peer, before + steps if 0 < before < steps else steps)

    patch(clock, "merge", merge)


MEMBERSHIP: Mapping[str, Mutant] = MappingProxyType(
    {
        "never-dead": _never_dead,
        "dead-for-ever": _dead_for_ever,
        "dead-not-dialled": _dead_not_dialled,
        "later-life-ignored": _later_life_ignored,
        "old-addressee": _old_addressee,
        "any-swarm": _any_swarm,
        "no-tombstones": _no_tombstones,
        "asks-once": _asks_once,
        "hasty-leave": _hasty_leave,
        "leaver-keeps-weight": _leaver_keeps_weight,
        "leaver-lets-in": _leaver_lets_in,
        "steps-added": _steps_added,
    }
)
"""By the name that people type."""
