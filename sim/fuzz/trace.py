"""Events and effects as text that depends on no Python name: what a fuzz digest is made of.

A digest must survive a class that is renamed or moved, and must change when a decision does. So an
effect is written as a code of its own and the numbers, identifiers and bytes that it carries.
"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache

from ...gossip.effects import effects as of
from ...gossip.effects import events
from ...gossip.effects.effects import Greet, Record, Send
from ...gossip.types import ShareId
from ...gossip.weight import in_units
from ...gossip.wire import messages
from ...gossip.wire.formats import Form
from ...gossip.wire.messages import Describe, Envelope, Hello

__all__ = ["canonical", "tell"]


_CODES: dict[type, str] = {
    of.Record: "record",
    of.Send: "send",
    of.Greet: "greet",
    of.Dismiss: "dismiss",
    of.Meet: "meet",
    of.Part: "part",
    of.Snapshot: "snapshot",
    of.Release: "release",
    of.Reclaim: "reclaim",
    of.Stage: "stage",
    of.Attach: "attach",
    of.Inspect: "inspect",
    of.Measure: "measure",
    of.TakeSketch: "take-sketch",
    of.Mix: "mix",
    of.Combine: "combine",
    of.Exchange: "exchange",
    of.Drop: "drop",
    of.Wait: "wait",
    of.EndTraining: "end-training",
    of.Halt: "halt",
    events.Founded: "founded",
    events.Joined: "joined",
    events.ShareMixed: "share-mixed",
    events.ShareRefused: "share-refused",
    events.PushSkipped: "push-skipped",
    events.PeerMet: "peer-met",
    events.PeerSuspected: "peer-suspected",
    events.PeerRecovered: "peer-recovered",
    events.PeerDied: "peer-died",
    events.PeerLeft: "peer-left",
    events.PeerRefused: "peer-refused",
    events.StaleIncarnation: "outlived",
    events.SwarmGivenUp: "swarm-given-up",
    events.ViewFull: "view-full",
    messages.Hello: "hello",
    messages.Describe: "describe",
    messages.Ask: "ask",
    messages.Offer: "offer",
    messages.Push: "push",
    messages.Grant: "grant",
    messages.Chunk: "chunk",
    messages.Ack: "ack",
    messages.Query: "query",
    messages.Pending: "pending",
    messages.Leave: "leave",
    messages.Refer: "refer",
    messages.Read: "read",
}
"""Frozen: a code stays when its class is renamed."""


def canonical(detail: object) -> str:
    """Write an effect, a message or a part of one as text.

    >>> canonical(of.Mix(of.ShareId("a", 1, 7), 0.5))
    '(mix,(a,1,7,0),0.5,(float32,0,0))'
    """
    kind: type = type(detail)
    names = _field_names(kind)
    if names is not None:
        if isinstance(detail, messages.Offer) and not detail.held:
            # As it was written before a share could be shown.
            names = tuple(name for name in names if name != "held")
        if isinstance(detail, messages.Member) and not detail.merge:
            # As it was written before peers told how far they are in merging.
            names = tuple(name for name in names if name not in ("merge", "sketch"))
        code = [_CODES[kind]] if kind in _CODES else []
        return f"({','.join(code + [canonical(getattr(detail, name)) for name in names])})"
    match detail:
        case Enum():
            return canonical(detail.value)
        case bytes():
            return detail.hex()
        case None:
            return "-"
        case bool():
            return str(int(detail))
        case Form(bare=False):
            # As it was written before a share could carry several registers, or be bare.
            return canonical(detail[: 3 if detail.registers == 1 else 4])
        case str() | int() | float():
            return str(detail)
        case Sequence():
            return f"({','.join(map(canonical, detail))})"
    raise TypeError(f"a trace has no form for {type(detail).__name__}")


@cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def tell(detail: object) -> str:
    """Say in a line what happened, without what is the same in all lines.

    Args:
        detail: A message, an effect, or whatever else an event is about.
    """
    match detail:
        case None:
            return ""
        case Envelope():
            return _message(detail)
        case Send(envelope):
            return f"send {_message(envelope)}"
        case Greet(address, envelope):
            return f"greet {address}: {_body(envelope)}"
        case Record(entry):
            other = f" {entry.peer}/{entry.incarnation} push {entry.seq}" if entry.peer else ""
            shard = f" of shard {entry.shard}" if entry.shard else ""
            return f"record {entry.kind.value} {in_units(entry.weight)}{other}{shard}"
        case ShareId():
            return _share(detail)
        case _:
            return _plain(detail)


def _message(envelope: Envelope) -> str:
    source = f"{envelope.source}/{envelope.source_incarnation}"
    to = f"{envelope.destination}/{envelope.destination_incarnation}"
    shard = f" shard {envelope.shard}" if envelope.shard else ""
    return f"{source} > {to}{shard} {_body(envelope)}"


def _body(envelope: Envelope) -> str:
    match envelope.body:
        case Hello(members=members, reply=reply):
            me = members[0]
            told = ", ".join(f"{m.id}/{m.incarnation} {m.phase.name.lower()}" for m in members[1:])
            asks = ", asks for an answer" if reply else ""
            return f"Hello({me.phase.name.lower()}, heartbeat {me.heartbeat}; {told}{asks})"
        case Describe():
            return "Describe(its schema)"
        case body:
            return repr(body)


def _share(share: ShareId) -> str:
    shard = f" of shard {share.shard}" if share.shard else ""
    return f"push {share.seq}{shard} of {share.sender}/{share.incarnation}"


def _plain(detail: object) -> str:
    share = getattr(detail, "share", None)
    if isinstance(share, ShareId):
        return f"{type(detail).__name__} {_share(share)}"
    return repr(detail)
