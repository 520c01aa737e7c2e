"""Events and effects in a line each, for the trace of a failure."""

from ...gossip.effects.effects import Greet, Send
from ...gossip.effects.ledger import Entry
from ...gossip.types import ShareId
from ...gossip.weight import in_units
from ...gossip.wire.messages import Describe, Envelope, Hello

__all__ = ["tell"]


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
