"""Mutants: known bugs, planted in the protocol to see whether a campaign finds them.

Each changes a single protocol object, as if its code had a mistake.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from rumor.gossip.effects.events import PeerDied
from rumor.gossip.effects.ledger import Entry, Kind, Life
from rumor.gossip.exchange.transfer import EscrowEvent
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.protocol.state import ShardState
from rumor.gossip.types import Incarnation, PeerId, ShareId
from rumor.gossip.wire.messages import Ack, Envelope, Member, Offer, Phase, Query
from rumor.sim.fuzz.trial import Mutant

__all__ = ["MUTANTS"]


MUTANTS: dict[str, Mutant] = {}
"""Mutants by name."""


def _mutant(plant: Mutant) -> Mutant:
    MUTANTS[plant.__name__.replace("_", "-")] = plant
    return plant


def _of_shard(plant: Callable[[ShardState], None]) -> Mutant:
    """Plant a bug in every shard."""

    @wraps(plant)
    def planted(protocol: Protocol) -> None:
        for shard_state in protocol.state.shard_states:
            plant(shard_state)

    return _mutant(planted)


def _patch(owner: object, name: str, wrapped: Callable[..., Any]) -> None:
    """Replace a method with a function, which receives that method and then its arguments."""
    method = getattr(owner, name)

    def patched(*arguments: Any, **named: Any) -> Any:
        return wrapped(method, *arguments, **named)

    setattr(owner, name, patched)


class _Forgetful(dict[Life, tuple[int, int]]):
    """Past decisions, which can be forgotten for a moment."""

    blind = False

    def get(self, key: Life, default: Any = None, /) -> Any:
        return default if self.blind else super().get(key, default)

    def blindly(self, act: Callable[..., None], *arguments: Any) -> None:
        self.blind = True
        try:
            act(*arguments)
        finally:
            self.blind = False


# Bugs in how shares are sent, received, settled and released.


@_of_shard
def no_deduplication(shard_state: ShardState) -> None:
    """A duplicate of a share that was already decided is decided again."""
    account = shard_state.log.account
    decided = account.decided = _Forgetful(account.decided)

    def forgetting(take: Callable[..., None], share: ShareId, message: Offer, *rest: Any) -> None:
        if share.seq <= _last(shard_state, share):
            decided.blindly(take, share, message, *rest)
        else:
            take(share, message, *rest)

    log, inbox = shard_state.log, shard_state.inbox
    _patch(log, "record", lambda record, entry: decided.blindly(record, entry))
    _patch(inbox, "push", forgetting)
    _patch(inbox, "offer", forgetting)


@_of_shard
def lost_fence(shard_state: ShardState) -> None:
    """A query about a share that never arrived is answered, and the share is accepted later."""

    def answer(query: Callable[..., None], share: ShareId, now: float) -> None:
        if share.seq > _last(shard_state, share) and shard_state.inbox._find(share) is None:
            shard_state.log.send(share.sender, share.incarnation, Ack(share.seq, 0))
        else:
            query(share, now)

    _patch(shard_state.inbox, "query", answer)


def _last(shard_state: ShardState, share: ShareId) -> int:
    """Number of the last decided share of a sender."""
    return shard_state.log.account.decided.get((share.sender, share.incarnation), (0, 0))[0]


@_of_shard
def accepts_more(shard_state: ShardState) -> None:
    """A receiver accepts one quantum more than was sent."""

    def record(write: Callable[..., None], entry: Entry) -> None:
        accepts = entry.kind is Kind.ACCEPTED and entry.weight
        write(replace(entry, weight=entry.weight + 1) if accepts else entry)

    _patch(shard_state.log, "record", record)


@_of_shard
def partial_as_whole(shard_state: ShardState) -> None:
    """The returned part of a partly accepted share is forgotten."""
    outbox = shard_state.outbox

    def ack(
        take: Callable[..., None], peer: PeerId, life: Incarnation, body: Ack, now: float
    ) -> None:
        transfer = outbox.transfers.get(peer)
        if transfer is not None and transfer.offer.seq == body.seq and body.accepted:
            body = replace(body, accepted=transfer.offer.escrow)
        take(peer, life, body, now)

    _patch(outbox, "ack", ack)


@_of_shard
def impatient(shard_state: ShardState) -> None:
    """A sender takes its escrow back after two unanswered queries."""
    outbox = shard_state.outbox

    def query_due(ask: Callable[..., None], now: float) -> None:
        for transfer in tuple(outbox.transfers.values()):
            if transfer.questions >= 2 and now >= transfer.deadline_s:
                outbox._on(transfer, EscrowEvent.ACK, now, 0)
        ask(now)

    _patch(outbox, "query_due", query_due)


@_mutant
def snapshot_kept(protocol: Protocol) -> None:
    """A snapshot that two pushes read is never released."""
    refs = protocol.state.snapshot_refs

    def remove(drop: Callable[..., None], snapshot: int, *, abandoned: bool = False) -> None:
        if refs._counts[snapshot] < 2:
            drop(snapshot, abandoned=abandoned)

    _patch(refs, "remove", remove)


@_of_shard
def first_shard_asked(shard_state: ShardState) -> None:
    """Every query asks about the first shard, whichever shard is meant."""
    log = shard_state.log

    def send(
        say: Callable[..., None], peer: PeerId, life: Incarnation, body: object, **more: Any
    ) -> None:
        shard, log._shard = log._shard, 0 if type(body) is Query else log._shard
        say(peer, life, body, **more)
        log._shard = shard

    _patch(log, "send", send)


@_of_shard
def unwritten_fence(shard_state: ShardState) -> None:
    """A fenced share is decided in memory but not in the ledger."""
    log, inbox = shard_state.log, shard_state.inbox

    def query(answer: Callable[..., None], share: ShareId, now: float) -> None:
        record = log.record
        log.record = log.account.apply  # type: ignore[method-assign,assignment]
        answer(share, now)
        log.record = record  # type: ignore[method-assign]

    _patch(inbox, "query", query)


# Bugs in membership: joining, leaving, the member table, and the clock of all steps.


@_mutant
def never_dead(protocol: Protocol) -> None:
    """No peer is ever considered dead."""
    table = protocol.state.table

    def tick(look: Callable[..., Iterator[Any]], now: float) -> Iterator[Any]:
        for change in look(now):
            if type(change) is PeerDied:
                table._others[change.peer].alive = True  # type: ignore[union-attr]
            else:
                yield change

    _patch(table, "tick", tick)


@_mutant
def later_life_ignored(protocol: Protocol) -> None:
    """A new incarnation of a known peer is mistaken for the last one."""
    table = protocol.state.table

    def admit(take: Callable[..., Iterator[Any]], member: Member, now: float, **more: Any) -> Any:
        return () if table.member(member.id) is not None else take(member, now, **more)

    _patch(table, "_admit", admit)


@_mutant
def any_swarm(protocol: Protocol) -> None:
    """Shares of another swarm are accepted."""

    def check(asked: Callable[..., bool], envelope: Envelope, now: float) -> bool:
        return bool(protocol.swarm) or asked(envelope, now)

    _patch(protocol._filter, "_is_of_my_swarm", check)


@_mutant
def asks_once(protocol: Protocol) -> None:
    """A newcomer that loses its donor asks no other."""
    joining = protocol._joining

    def ask(choose: Callable[..., None], donors: Any, now: float) -> None:
        if joining._donor is None:
            choose(donors, now)

    _patch(joining, "_ask", ask)


@_mutant
def leaver_keeps_weight(protocol: Protocol) -> None:
    """A leaver that finds no heir takes its weight with it."""
    leaving, table = protocol._leaving, protocol.table

    def hand_on(push: Callable[..., None], now: float) -> None:
        if any(m.phase.takes_shares for m in table.live() if m.id != table.id):
            push(now)
        elif protocol.phase is Phase.LEAVING:
            leaving._go()

    _patch(leaving, "_hand_on", hand_on)


@_mutant
def steps_added(protocol: Protocol) -> None:
    """Reported step counts are added up, where the larger one should count."""
    clock = protocol.state.table.clock

    def merge(take: Callable[..., None], peer: PeerId, steps: int) -> None:
        before = clock.rows().get(peer, 0)
        take(peer, before + steps if 0 < before < steps else steps)

    _patch(clock, "merge", merge)


@_mutant
def merge_by_count(protocol: Protocol) -> None:
    """Merging ends after a fixed number of pushes, however far apart the models are."""
    agreement = protocol.agreement

    def compare(real: Callable[..., None], others: Sequence[Member]) -> None:
        agreement.reached = agreement.is_over = True
        protocol.state.close("finished")

    _patch(agreement, "_compare", compare)
