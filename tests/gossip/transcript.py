"""Effects and messages as readable lines, suitable for a diff."""

from rumor.gossip.effects.effects import (
    Attach,
    Drop,
    Effect,
    Greet,
    Inspect,
    Meet,
    Mix,
    Part,
    Release,
    Send,
    Snapshot,
    Stage,
)
from rumor.gossip.effects.events import Event
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.types import ShareId
from rumor.gossip.weight import founders
from rumor.gossip.wire.formats import NATIVE, Form
from rumor.gossip.wire.messages import Ack, Chunk, Envelope, Grant, Hello, Leave, Offer

__all__ = ["line_of"]


def line_of(what: Effect | Event | Envelope) -> str:
    """Describe an effect or a message in words; weights are in founders."""
    match what:
        case Envelope():
            return f"{what.source} > {what.destination or '?'} {_message(what)}"
        case Send(envelope):
            return f"send {line_of(envelope)}"
        case Greet(address, envelope):
            return f"greet {address}: {_message(envelope)}"
        case Entry():
            return f"ledger: {_entry(what)}"
        case Snapshot(id, register, form, shard):
            named = register if isinstance(register, str) else " and ".join(register)
            return f"snapshot {id} of {_part(named, shard)}{_form(form)}"
        case Release(id, abandoned):
            return f"release snapshot {id}" + (", abandoned" if abandoned else "")
        case Stage(share, offset, size):
            return f"stage {_share(share)} at {offset} of {size}"
        case Attach(share, segment):
            return f"attach {_share(share)} at {segment}"
        case Inspect(share):
            return f"inspect {_share(share)}"
        case Drop(share):
            return f"drop {_share(share)}"
        case Mix(share, fraction, form):
            return f"mix {_share(share)}, fraction {fraction:.4g}" + (", a copy" * form.copy)
        case Meet(peer, _) | Part(peer):
            return f"{type(what).__name__.lower()} {peer}"
        case _:
            return str(what)


def _share(share: ShareId) -> str:
    return _part(f"{share.sender}#{share.seq}", share.shard)


def _part(what: str, shard: int) -> str:
    return f"{what} shard {shard}" if shard else what


def _form(form: Form) -> str:
    as_what = "" if form.wire == NATIVE else f" as {form.wire}"
    return as_what + " and the local buffers" * form.copy + " and the anchor" * form.anchor


def _entry(entry: Entry) -> str:
    words = entry.kind.value
    if entry.kind not in (Kind.STRANDED, Kind.FOUND, Kind.WRITTEN_OFF):
        words += f" {founders(entry.weight):.6g}"
    words += f", {entry.peer}/{entry.incarnation}#{entry.seq}" if entry.peer else ""
    return _part(words, entry.shard)


def _message(envelope: Envelope) -> str:
    body = envelope.body
    name = type(body).__name__.upper()
    words = _part(f"{name}#{body.seq}", envelope.shard) if hasattr(body, "seq") else name
    match body:
        case Hello(members=members, reply=reply):
            known = ", ".join(f"{m.id}/{m.incarnation} {m.phase.name.lower()}" for m in members)
            return f"{words} ({known})" + (" answer!" if reply else "")
        case Offer(escrow=escrow, size_bytes=size, form=form):
            what = "a copy" if form.copy else "a share"
            text = f"{words} {founders(escrow):.6g} and {what} of {size} bytes"
            return text + (f" at {body.segment}" if body.segment else "")
        case Grant(_, credit):
            return f"{words} up to {credit}"
        case Chunk(_, index, offset):
            return f"{words} frame {index} at {offset}, {envelope.frame_bytes} bytes"
        case Ack(_, accepted, credit):
            text = f"{words} accepted {founders(accepted):.6g}"
            return text + (f", {credit} bytes next" if credit else "")
        case Leave(gone):
            return f"{words} " + ("gone" if gone else "soon")
        case _:
            return words
