"""What a header may say: every field of every message, with its type and range.

The order of a table is that of the fields on the wire.
"""

from collections.abc import Callable
from typing import Any, Final

from ..errors import ConfigError
from ..weight import decode_weight, encode_weight
from .formats import REGISTERS_MAX, Form, parse_wire
from .messages import (
    HEARTBEAT_MAX,
    ROWS_TOLD_MAX,
    SKETCH_NUMBERS,
    STEPS_MAX,
    Ack,
    Ask,
    Body,
    Chunk,
    ClockRow,
    Describe,
    EventNote,
    Grant,
    Hello,
    Inquire,
    Leave,
    LinkStatus,
    Member,
    Offer,
    Pending,
    Phase,
    Push,
    Query,
    Read,
    Refer,
    Sighting,
    Standing,
    Status,
    Stop,
    Stopping,
)
from .schema import HASH_BYTES, FrozenTensor, Schema, TensorSpec, itemsize

__all__ = [
    "BODIES",
    "ENVELOPE",
    "EVENTS_TOLD_MAX",
    "FRAME_BYTES_MAX",
    "FROZEN",
    "LINKS_TOLD_MAX",
    "LIVES_MAX",
    "LONGER",
    "MEMBER",
    "MEMBERS_TOLD_MAX",
    "NAMED_MAX",
    "RECORDS",
    "REFERRED_MAX",
    "SAMPLE_NUMBERS_MAX",
    "SEGMENT_LENGTH_MAX",
    "SHARDS_MAX",
    "TENSOR",
    "TENSOR_ORDERED",
    "WEIGHT_BYTES_MAX",
    "Check",
    "FieldError",
    "each",
    "fields",
    "flag",
    "integer",
    "number",
    "octets",
    "seconds",
    "text",
    "weight",
]


Check = Callable[[Any], Any]
"""Takes one value and hands it on as what it must be, or raises `FieldError`."""


class FieldError(Exception):
    """A field is not what it must be."""


def integer(low: int, high: int) -> Check:
    """A whole number in [low, high]; a truth value is none."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise FieldError(f"an integer in [{low}, {high}]")
        return value

    return check


def seconds(value: Any) -> float:
    """A finite time of at most some thousand years, not below 0.

    Raises:
        FieldError: It is none.
    """
    if type(value) is not float or not 0 <= value <= _SECONDS_MAX:
        raise FieldError(f"a float in [0, {_SECONDS_MAX:g}]")
    return value


def number(value: Any) -> float:
    """Any float that is a number, infinity included.

    Raises:
        FieldError: It is none.
    """
    if type(value) is not float or value != value:
        raise FieldError("a float that is a number")
    return value


def weight(units_max: int) -> Check:
    """A weight of at most so many units: their number, or bytes where that is not whole.

    One weight has one form (`encode_weight`): whole units that came as bytes are refused, and so
    are leading zeros.
    """
    weight_max = decode_weight(units_max)

    def check(value: Any) -> int:
        if type(value) is int and 0 <= value <= units_max:
            return decode_weight(value)
        if type(value) is not bytes:
            raise FieldError(f"an integer in [0, {units_max}], or bytes")
        decoded = decode_weight(value)
        if not 0 < decoded <= weight_max or not value[0]:
            raise FieldError(f"a weight of at most {units_max} units, without leading zeros")
        if encode_weight(decoded) != value:
            raise FieldError("a number where its units are whole")
        return decoded

    return check


def text(length_min: int, length_max: int) -> Check:
    """Printable text of so many characters."""

    def check(value: Any) -> str:
        if type(value) is not str or not length_min <= len(value) <= length_max:
            raise FieldError(f"text of {length_min} to {length_max} characters")
        if not value.isprintable():
            raise FieldError("printable text")
        return value

    return check


def octets(*lengths: int) -> Check:
    """Bytes of one of these lengths."""

    def check(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in lengths:
            raise FieldError(f"bytes of length {lengths}")
        return value

    return check


def flag(value: Any) -> bool:
    """True or false.

    Raises:
        Bad: It is neither.
    """
    if type(value) is not bool:
        raise FieldError("true or false")
    return value


def each(check: Check, count_max: int) -> Check:
    """An array of at most so many, each of which passes *check*."""

    def check_all(value: Any) -> tuple[Any, ...]:
        if type(value) is not tuple or len(value) > count_max:
            raise FieldError(f"an array of at most {count_max}")
        return tuple(check(item) for item in value)

    return check_all


def fields(value: Any, table: dict[str, Check]) -> dict[str, Any]:
    """Name the items of an array by the names of a table, whose checks they pass, in its order.

    Raises:
        Bad: There are more or fewer, or one does not pass; the message names it.
    """
    if type(value) is not tuple or len(value) != len(table):
        raise FieldError(f"an array of {len(table)}")
    found = {}
    for (name, check), item in zip(table.items(), value, strict=True):
        try:
            found[name] = check(item)
        except FieldError as bad:
            raise FieldError(f"{name} must be {bad}") from None
    return found


FRAME_BYTES_MAX = 4 << 20
"""Largest second part of a message, in bytes."""

SHARDS_MAX = 1 << 14
"""Most pieces that a vector is cut into."""

WEIGHT_BYTES_MAX = 128
"""Longest weight that is not a whole number of units, in bytes."""

REFERRED_MAX = 64
"""Most donors that one message names."""

SEGMENT_LENGTH_MAX = 128
"""Longest name of a place in shared memory."""

LIVES_MAX = 1 << 12
"""Most lives that one request to stop names."""

NAMED_MAX = 64
"""Most figures, settings or reasons in one status."""

SAMPLE_NUMBERS_MAX = 256
"""Most numbers of a model in one status: differences of models follow from them to some 6 %."""

LINKS_TOLD_MAX = 64
"""Most links in one status."""

EVENTS_TOLD_MAX = 64
"""Most events in one status."""

MEMBERS_TOLD_MAX = 256
"""Most members in one status."""

_SIGNATURE_BYTES: Final = 64
_SECONDS_MAX: Final = 1e11
_U64: Final = 2**64 - 1
_U63: Final = 2**63 - 1
_U32: Final = 2**32 - 1

_COUNT = integer(0, _U63)
_WEIGHT = weight(_U63)
_SEQ = integer(1, _U63)
_PEER = text(1, 64)


def _phase(value: Any) -> Phase:
    return Phase(integer(0, max(Phase))(value))


MEMBER: dict[str, Check] = {
    "id": _PEER,
    "incarnation": integer(1, _U63),
    "heartbeat": integer(0, HEARTBEAT_MAX),
    "phase": _phase,
    "step": integer(0, STEPS_MAX),
    "addresses": each(text(1, 256), 16),
    "anchored": flag,
    "host": octets(0, HASH_BYTES),
    "merge": integer(0, STEPS_MAX),
    "sketch": each(number, SKETCH_NUMBERS),
}


def _member(value: Any) -> Member:
    return Member(**fields(value, MEMBER))


def _clock_row(value: Any) -> ClockRow:
    peer, steps = fields(value, {"peer": _PEER, "steps": integer(0, STEPS_MAX)}).values()
    return peer, steps


def _dtype(value: Any) -> str:
    if type(value) is not str or itemsize(value) is None:
        raise FieldError("a dtype that can travel")
    return value


TENSOR: dict[str, Check] = {
    "name": text(1, 1024),
    "shape": each(integer(0, 2**48), 32),
    "dtype": _dtype,
    "shared": flag,
}
TENSOR_ORDERED: dict[str, Check] = TENSOR | {"order": each(integer(0, 31), 32)}
"""With the order of its axes in memory, which is left out where it is that of the shape."""

FROZEN: dict[str, Check] = {
    "name": text(1, 1024),
    "shape": TENSOR["shape"],
    "dtype": text(1, 64),
    "checksum": integer(0, _U32),
}


def _tensor(value: Any) -> TensorSpec:
    is_ordered = type(value) is tuple and len(value) == len(TENSOR_ORDERED)
    return TensorSpec(**fields(value, TENSOR_ORDERED if is_ordered else TENSOR))


def _said(value: Any) -> bool:
    if value is not True:
        raise FieldError("true, or left out")
    return True


_SCHEMA: dict[str, Check] = {
    "tensors": each(_tensor, 1 << 16),
    "shards": integer(1, SHARDS_MAX),
}
_SCHEMA_SCATTERED: dict[str, Check] = _SCHEMA | {"scattered": _said}
_SCHEMA_FROZEN: dict[str, Check] = _SCHEMA | {
    "scattered": flag,
    "frozen": each(lambda item: FrozenTensor(**fields(item, FROZEN)), 1 << 16),
}
_SCHEMAS = {len(checks): checks for checks in (_SCHEMA, _SCHEMA_SCATTERED, _SCHEMA_FROZEN)}


def _schema(value: Any) -> Schema:
    length = len(value) if type(value) is tuple else 0
    try:
        return Schema(**fields(value, _SCHEMAS.get(length, _SCHEMA)))
    except ConfigError as error:
        raise FieldError(f"a vector that can be cut so: {error}") from None


def _wire(value: Any) -> str:
    name: str = text(1, 32)(value)
    try:
        parse_wire(name)
    except ConfigError:
        raise FieldError("a format that can travel") from None
    return name


_FORM: dict[str, Check] = {"wire": _wire, "copy": flag, "anchor": flag}
_FORM_OF_SEVERAL: dict[str, Check] = _FORM | {"registers": integer(2, REGISTERS_MAX)}


_BARE_FORM: dict[str, Check] = _FORM | {"registers": integer(1, REGISTERS_MAX), "bare": _said}
_FORMS = {len(checks): checks for checks in (_FORM, _FORM_OF_SEVERAL, _BARE_FORM)}


def _form(value: Any) -> Form:
    length = len(value) if type(value) is tuple else 0
    return Form(**fields(value, _FORMS.get(length, _FORM)))


_OFFER: dict[str, Check] = {
    "seq": _SEQ,
    "escrow": _WEIGHT,
    "size_bytes": _COUNT,
    "frame_bytes": integer(0, FRAME_BYTES_MAX),
    "eager_bytes": _COUNT,
    "form": _form,
    "segment": text(0, SEGMENT_LENGTH_MAX),
    "epoch": _COUNT,
    "round": _COUNT,
    "note": _COUNT,
    "step": _COUNT,
}


def _held(value: Any) -> int:
    held: int = _WEIGHT(value)
    if not held:
        raise FieldError("more than 0, or left out")
    return held


_SHOWN: dict[str, Check] = _OFFER | {"held": _held}
_ACK: dict[str, Check] = {"seq": _SEQ, "accepted": _WEIGHT, "credit_bytes": _COUNT}
LONGER: dict[type[Body], dict[str, Check]] = {
    Push: _SHOWN,
    Offer: _SHOWN,
    Ack: _ACK | {"bytes_s": integer(1, (1 << 63) - 1)},
}
"""What some messages say beyond what `BODIES` has, in a further field."""

_LIFE: dict[str, Check] = {"id": _PEER, "incarnation": integer(1, _U63)}


def _life(value: Any) -> tuple[str, int]:
    told = fields(value, _LIFE)
    return told["id"], told["incarnation"]


_LINK_STATUS: dict[str, Check] = {
    "peer": _PEER,
    "shares_memory": flag,
    **dict.fromkeys(("bytes_sent", "bytes_received", "frames_sent", "frames_received"), _COUNT),
    **dict.fromkeys(("pushes", "refusals", "mixed", "in_flight"), _COUNT),
    "roundtrip_s": seconds,
    "silent_s": seconds,
}
_EVENT_NOTE: dict[str, Check] = {
    "number": _SEQ,
    "event": text(1, 32),
    "peer": text(0, 64),
    "ago_s": seconds,
}
_SIGHTING: dict[str, Check] = {
    "member": _member,
    "standing": lambda value: Standing(integer(0, max(Standing))(value)),
}

RECORDS: dict[type[Any], dict[str, Check]] = {
    Member: MEMBER,
    LinkStatus: _LINK_STATUS,
    EventNote: _EVENT_NOTE,
    Sighting: _SIGHTING,
}
"""What travels as an array of its fields inside a message."""


def _record(kind: type[Any], count_max: int) -> Check:
    """So many records of a kind at most."""
    return each(lambda value: kind(**fields(value, RECORDS[kind])), count_max)


def _row(**table: Check) -> Check:
    """An array of these items."""
    return lambda value: tuple(fields(value, table).values())


# The number of a message on the wire is its place in this table: append, never insert.
BODIES: tuple[tuple[type[Body], dict[str, Check]], ...] = (
    (
        Hello,
        {
            "members": each(_member, 1 << 14),
            "clock": each(_clock_row, ROWS_TOLD_MAX),
            "rooted": flag,
            "reply": flag,
        },
    ),
    (Describe, {"schema": _schema}),
    (Ask, {"anchor": flag}),
    (Push, _OFFER),
    (Offer, _OFFER),
    (Grant, {"seq": _SEQ, "credit_bytes": _COUNT}),
    (Chunk, {"seq": _SEQ, "index": integer(0, _U32), "offset_bytes": _COUNT}),
    (Ack, _ACK),
    (Query, {"seq": _SEQ}),
    (Pending, {"seq": _SEQ}),
    (Leave, {"gone": flag}),
    (Refer, {"donors": each(_member, REFERRED_MAX)}),
    (Read, {}),
    (Stop, {"lives": each(_life, LIVES_MAX), "signature": octets(0, _SIGNATURE_BYTES)}),
    (
        Stopping,
        {
            "why": text(0, 256),
            "weight": _WEIGHT,
            "phase": _phase,
            "step": integer(0, STEPS_MAX),
            "done": flag,
        },
    ),
    (Inquire, {"events_after": _COUNT, "members": flag, "members_after": text(0, 64)}),
    (
        Status,
        {
            "me": _member,
            "uptime_s": seconds,
            "swarm_steps": integer(0, STEPS_MAX),
            "figures": each(_row(name=text(1, 32), value=number), NAMED_MAX),
            "settings": each(_row(name=text(1, 32), value=text(0, 256)), NAMED_MAX),
            "awaits": each(_PEER, NAMED_MAX),
            "reasons": each(_row(what=text(1, 32), why=text(0, 256), count=_COUNT), NAMED_MAX),
            "links": _record(LinkStatus, LINKS_TOLD_MAX),
            "events": _record(EventNote, EVENTS_TOLD_MAX),
            "members": _record(Sighting, MEMBERS_TOLD_MAX),
            "more": flag,
            "sample": each(number, SAMPLE_NUMBERS_MAX),
        },
    ),
)

ENVELOPE: dict[str, Check] = {
    "swarm": octets(0, HASH_BYTES),
    "schema": octets(HASH_BYTES),
    "source": _PEER,
    "source_incarnation": integer(1, _U63),
    "destination": text(0, 64),
    "destination_incarnation": _COUNT,
    "shard": integer(0, SHARDS_MAX - 1),
    "frame_bytes": integer(0, FRAME_BYTES_MAX),
    "frame_check": integer(0, _U64),
    "kind": integer(0, len(BODIES) - 1),
    "body": lambda value: value,
}
