"""Events and effects in a line each, for those who have to find out what went wrong."""

from ...gossip.effects import Greet, Record, Send, ShareId
from ...gossip.messages import Describe, Envelope, Hello
from ...gossip.weight import in_units

__all__ = ["tell"]


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
