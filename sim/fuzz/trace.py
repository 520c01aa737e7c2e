"""Events and effects as text that depends on no Python name: the input of a fuzz digest."""

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import get_args

from ...gossip.effects.effects import Effect, Greet, Send
from ...gossip.effects.events import Event, StaleIncarnation
from ...gossip.effects.ledger import Entry
from ...gossip.types import ShareId
from ...gossip.weight import in_units
from ...gossip.wire.formats import Form
from ...gossip.wire.messages import Body, Describe, Envelope, Hello, Leave, Member, Offer, Push

__all__ = ["canonical", "tell"]

# A digest must survive a class that is renamed or moved, and must change when a decision does: a
# renamed class keeps its code, as this one did.
_CODES = {
    kind: re.sub("(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
    for kind in get_args(Effect) + get_args(Event) + get_args(Body)
} | {StaleIncarnation: "outlived"}

# Added after traces were frozen, and left out where the first of them is empty.
_ADDED = {
    Offer: ("held",),
    Push: ("held",),
    Member: ("merge", "sketch"),
    Leave: ("reason",),
}


def canonical(detail: object) -> str:
    """Write an effect, a message or a part of one as text.

    >>> from rumor.gossip.effects.effects import Mix
    >>> canonical(Mix(ShareId("a", 1, 7), 0.5))
    '(mix,(a,1,7,0),0.5,(float32,0,0))'
    """
    kind: type = type(detail)
    names = _field_names(kind)
    if names is not None:
        added = _ADDED.get(kind)
        if added is not None and not getattr(detail, added[0]):
            names = tuple(name for name in names if name not in added)
        if kind is Entry:
            # An effect of its own held the entry when traces were frozen.
            return f"(record,({','.join(canonical(getattr(detail, name)) for name in names)}))"
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
            # The format from before a share could carry several registers, or be bare.
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
    """Describe an event in a line, without the parts that are the same in all lines."""
    match detail:
        case None:
            return ""
        case Envelope(body=body):
            source = f"{detail.source}/{detail.source_incarnation}"
            to = f"{detail.destination}/{detail.destination_incarnation}"
            return f"{source} > {to} shard {detail.shard} {tell(body)}"
        case Send(envelope):
            return f"send {tell(envelope)}"
        case Greet(address, envelope):
            return f"greet {address}: {tell(envelope.body)}"
        case Hello(members=(me, *others), reply=reply):
            told = ", ".join(f"{m.id}/{m.incarnation} {m.phase.name.lower()}" for m in others)
            asks = ", asks for an answer" if reply else ""
            return f"Hello({me.phase.name.lower()}, heartbeat {me.heartbeat}; {told}{asks})"
        case Describe():
            return "Describe(its schema)"
        case Entry():
            other = f" {detail.peer}/{detail.incarnation} push {detail.seq}" if detail.peer else ""
            weight = in_units(detail.weight)
            return f"record {detail.kind.value} {weight}{other} of shard {detail.shard}"
        case ShareId(sender, incarnation, seq, shard):
            return f"push {seq} of shard {shard} of {sender}/{incarnation}"
    share = getattr(detail, "share", None)
    return f"{type(detail).__name__} {tell(share)}" if isinstance(share, ShareId) else repr(detail)
