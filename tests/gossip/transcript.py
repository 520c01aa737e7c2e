"""Effects and messages as lines that a person can read and a diff can show."""

from rumor.gossip import Entry, Envelope, Kind
from rumor.gossip.effects import (
    Drop,
    Effect,
    Greet,
    Inspect,
    Meet,
    Mix,
    Part,
    Record,
    Release,
    Send,
    ShareId,
    Snapshot,
    Stage,
)
from rumor.gossip.messages import Ack, Chunk, Grant, Hello, Leave, Offer
from rumor.gossip.weight import founders

__all__ = ["line_of"]


def line_of(what: Effect | Envelope) -> str:
    """Put an effect or a message into words; weights are in founders."""
    match what:
        case Envelope():
            return f"{what.source} > {what.destination or '?'} {_message(what)}"
        case Send(envelope):
            return f"send {line_of(envelope)}"
        case Greet(address, envelope):
            return f"greet {address}: {_message(envelope)}"
        case Record(entry):
            return f"ledger: {_entry(entry)}"
        case Snapshot(id, register, copy):
            return f"snapshot {id} of {register}" + (" and the local buffers" if copy else "")
        case Release(id):
            return f"release snapshot {id}"
        case Stage(share, offset, size):
            return f"stage {_share(share)} at {offset} of {size}"
        case Inspect(share):
            return f"inspect {_share(share)}"
        case Drop(share):
            return f"drop {_share(share)}"
        case Mix(share, fraction, copy):
            return f"mix {_share(share)}, fraction {fraction:.4g}" + (", a copy" if copy else "")
        case Meet(peer, _) | Part(peer):
            return f"{type(what).__name__.lower()} {peer}"
        case _:
            return str(what)


def _share(share: ShareId) -> str:
    return f"{share.sender}#{share.seq}"


def _entry(entry: Entry) -> str:
    words = entry.kind.value
    if entry.kind not in (Kind.STRANDED, Kind.FOUND, Kind.WRITTEN_OFF):
        words += f" {founders(entry.units):.6g}"
    return words + (f", {entry.peer}/{entry.incarnation}#{entry.seq}" if entry.peer else "")


def _message(envelope: Envelope) -> str:
    body = envelope.body
    name = type(body).__name__.upper()
    words = f"{name}#{body.seq}" if hasattr(body, "seq") else name
    match body:
        case Hello(members=members, reply=reply):
            known = ", ".join(f"{m.id}/{m.incarnation} {m.phase.name.lower()}" for m in members)
            return f"{words} ({known})" + (" answer!" if reply else "")
        case Offer(escrow=escrow, size_bytes=size, copy=copy):
            what = "a copy" if copy else "a share"
            return f"{words} {founders(escrow):.6g} and {what} of {size} bytes"
        case Grant(_, credit):
            return f"{words} up to {credit}"
        case Chunk(_, index, offset):
            return f"{words} frame {index} at {offset}, {envelope.frame_bytes} bytes"
        case Ack(_, accepted):
            return f"{words} accepted {founders(accepted):.6g}"
        case Leave(gone):
            return f"{words} " + ("gone" if gone else "soon")
        case _:
            return words
