"""Calls of a protocol as data: the runtime makes them, the journal keeps them."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ...gossip.effects.effects import Effect
from ...gossip.effects.events import Event
from ...gossip.errors import RemoteProtocolError
from ...gossip.protocol.protocol import Protocol
from ...gossip.types import ShareId
from ...gossip.wire.codec import Buffer, decode_header

__all__ = ["Call", "pack_call", "unpack_call"]

_METHODS: Final = frozenset(
    {
        *("join", "step", "trained_shard", "wake", "filled", "finish", "leave", "receive"),
        *("inspected", "attached", "measured", "sketched", "unsent", "read"),
    }
)
"""Methods of `Protocol` that change it."""


class Call(NamedTuple):
    """A call of one of a protocol's methods."""

    method: str
    """One of `Protocol`'s that take ``now``."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """By name, but for ``now``; what `pack_call` can write."""
    header: Buffer = b""
    """First part of the message in ``envelope``, as it came over the wire: it has the checksum of
    the frame next to it."""

    def make(self, protocol: Protocol, now: float) -> list[Effect | Event]:
        """Call the method at *now*, seconds.

        Raises:
            RemoteProtocolError: A message breaks the protocol.
        """
        effects: list[Effect | Event] = getattr(protocol, self.method)(now=now, **self.arguments)
        return effects


def pack_call(call: Call) -> bytes:
    """Write a call: JSON, which keeps every bit of a float, and behind a 0 what ``header`` has."""
    arguments = {name: value for name, value in call.arguments.items() if name != "envelope"}
    if "distances" in arguments:
        rows = [[*share, distance] for share, distance in arguments["distances"].items()]
        arguments["distances"] = rows
    return json.dumps([call.method, arguments]).encode() + b"\0" + bytes(call.header)


def unpack_call(packed: bytes) -> Call:
    """Read what `pack_call` wrote.

    Raises:
        ValueError: It is no call of a protocol.
    """
    text, _, header = packed.partition(b"\0")
    method, arguments = json.loads(text)
    if method not in _METHODS or not isinstance(arguments, dict):
        raise ValueError(f"no call of a protocol: {method!r}")
    try:
        if header:
            arguments["envelope"] = decode_header(header)[0]
        if "share" in arguments:
            arguments["share"] = ShareId(*arguments["share"])
        for name in {"seeds", "sketch"} & arguments.keys():
            arguments[name] = tuple(arguments[name])
        if "distances" in arguments:
            rows = arguments["distances"]
            arguments["distances"] = {ShareId(*share): far for *share, far in rows}
    except (TypeError, RemoteProtocolError) as error:
        raise ValueError(f"no arguments of {method}: {error}") from None
    return Call(method, arguments, header)
