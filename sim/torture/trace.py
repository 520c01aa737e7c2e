"""Events and effects as text that depends on no Python name: what a fuzz digest is made of.

A digest must survive a class that is renamed or moved, and must change when a decision does. So an
effect is written as a code of its own and the numbers, identifiers and bytes that it carries.
"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum

from ...gossip import effects as of
from ...gossip import events, messages

__all__ = ["canonical"]

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
    of.Mix: "mix",
    of.Combine: "combine",
    of.Drop: "drop",
    of.Wait: "wait",
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
    events.Outlived: "outlived",
    events.SwarmGivenUp: "swarm-given-up",
    events.ViewFull: "view-full",
    messages.Hello: "hello",
    messages.Describe: "describe",
    messages.Ask: "ask",
    messages.Offer: "offer",
    messages.Push: "push",
    messages.Grant: "grant",
    messages.Chunk: "chunk",
    messages.End: "end",
    messages.Ack: "ack",
    messages.Query: "query",
    messages.Pending: "pending",
    messages.Leave: "leave",
    messages.Refer: "refer",
}
"""Frozen: a code stays when its class is renamed."""


def canonical(detail: object) -> str:
    """Write an effect, a message or a part of one as text.

    >>> canonical(of.Mix(of.ShareId("a", 1, 7), 0.5))
    '(mix,(a,1,7,0),0.5,(float32,0,0))'
    """
    match detail:
        case Enum():
            return canonical(detail.value)
        case bytes():
            return detail.hex()
        case None:
            return "-"
        case bool():
            return str(int(detail))
        case str() | int() | float():
            return str(detail)
        case Sequence():
            return f"({','.join(map(canonical, detail))})"
    if not is_dataclass(detail):
        raise TypeError(f"a trace has no form for {type(detail).__name__}")
    code = [_CODES[type(detail)]] if type(detail) in _CODES else []
    return f"({','.join(code + [canonical(getattr(detail, f.name)) for f in fields(detail)])})"
