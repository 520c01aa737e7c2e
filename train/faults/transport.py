"""Network faults for live peers: the plan of a simulation, applied in real time."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Final, Self

from ...gossip.errors import ConfigError, RemoteProtocolError
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.transport.sockets import Received, Route
from ...gossip.transport.zmq_transport import Transport
from ...gossip.types import PeerId
from ...gossip.wire.codec import Buffer, decode_header
from ..storage.files import read_json, write_json
from .network import NetworkFaults
from .schedule import Fault, faults_as_json, read_faults

__all__ = ["FaultyTransport", "NetworkPlan"]

# Interval between checks of a file that does not yet say when the run began.
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """The network faults of a live run, which its peers read from a file."""

    ids: tuple[PeerId, ...]
    """All possible peers: founders, then newcomers."""

    seed: int
    """Seed for the choice of messages."""

    faults: tuple[Fault, ...]
    """Faults in order of time, with names in place of positions."""

    began_unix_s: float | None = None
    """Time from which the times of faults count, once the launcher knows that all peers train."""

    def write(self, path: Path) -> None:
        """Replace a file by this plan."""
        write_json(path, asdict(self) | {"faults": faults_as_json(self.faults)})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a plan from a file, or raise ConfigError."""
        try:
            content = read_json(path)
            told = {"ids": tuple(content["ids"]), "faults": read_faults(content["faults"])}
            return cls(**content | told)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"{path} does not say what happens to the network: {error}") from None


@dataclass(slots=True)
class _Held:
    """A message in memory; see `Received`."""

    header: bytes
    route: Route
    key: bytes
    place: str
    parts: tuple[bytes, ...]

    @property
    def more(self) -> bool:
        return bool(self.parts)

    def frame(self) -> Buffer:
        first, self.parts = self.parts[:1], self.parts[1:]
        return b"".join(first)

    def finish(self) -> bool:
        unread, self.parts = self.more, ()
        return unread


class FaultyTransport(Transport):
    """Sockets of one peer, whose messages are subject to `NetworkFaults`.

    Args:
        path: The file of a `NetworkPlan`.
        bind: Like *bulk_messages_max* and *keyring*, as for `Transport`.
        clock: A monotonic clock, seconds.
    """

    def __init__(
        self,
        path: Path,
        id: PeerId,
        bind: str | Sequence[str] | None = "tcp://127.0.0.1:*",
        *,
        bulk_messages_max: int = 80,
        keyring: Keyring | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        plan = NetworkPlan.read(path)
        self._indices = {peer: index for index, peer in enumerate(plan.ids)}
        if id not in self._indices:
            raise ConfigError(f"{path} is of a run without a peer {id!r}")
        super().__init__(bind, bulk_messages_max=bulk_messages_max, keyring=keyring)
        self._path = path
        self._me = self._indices[id]
        self._faults = NetworkFaults(plan.faults, plan.ids, plan.seed)
        self._clock = clock
        self._began_s: float | None = None
        self._look_s = -math.inf
        self._seen_ns = 0
        # Messages to deliver later: due time, order among equal times, message.
        self._held: list[tuple[float, int, _Held]] = []
        self._order = count()
        # Time up to which resets have been applied.
        self._reset_s = -math.inf

    def poll(self, timeout_s: float) -> Iterator[Received]:
        """Wait as `Transport.poll` does, also for kept messages; yield those that are not lost."""
        # Faults are applied at the receiver, because the header identifies the sender.
        began_s = self._begun()
        if began_s is None:
            yield from super().poll(min(timeout_s, _LOOK_S))
            return
        self._break_off(self._clock() - began_s)
        next_s = min(self._faults.next_reset_s(self._reset_s), self._due_s)
        rest_s = max(0.0, next_s - (self._clock() - began_s))
        for received in super().poll(min(timeout_s, rest_s)):
            yield from self._passing(received, self._clock() - began_s)
        while self._due_s <= self._clock() - began_s:
            message = heappop(self._held)[2]
            yield message
            self.malformed += message.finish()

    @property
    def _due_s(self) -> float:
        return self._held[0][0] if self._held else math.inf

    def _begun(self) -> float | None:
        """Return when the run began, by this peer's clock; None while unknown."""
        now_s = self._clock()
        if self._began_s is None and now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            # Training must not end because the file was removed.
            with suppress(OSError, ConfigError):
                seen_ns = self._path.stat().st_mtime_ns
                if seen_ns != self._seen_ns:
                    began_unix_s = NetworkPlan.read(self._path).began_unix_s
                    self._seen_ns = seen_ns
                    if began_unix_s is not None:
                        self._began_s = now_s - (time.time() - began_unix_s)
        return self._began_s

    def _break_off(self, now_s: float) -> None:
        """Apply the resets that are due."""
        if self._faults.next_reset_s(self._reset_s) > now_s:
            return
        since_s, self._reset_s = self._reset_s, now_s
        known = [(peer, self._indices[peer]) for peer in self._peers if peer in self._indices]
        self.reset(
            [peer for peer, i in known if self._faults.was_reset(since_s, now_s, self._me, i)]
        )

    def _passing(self, received: Received, now_s: float) -> Iterator[Received]:
        """Yield a received message unless it is lost or delayed; keep its duplicates for later."""
        times_s = self._times_s(received, now_s)
        if times_s == (now_s,):
            yield received
            return
        if not times_s:
            received.finish()
            return
        parts = []
        while received.more:
            parts.append(bytes(received.frame()))
        message = _Held(received.header, received.route, received.key, received.place, (*parts,))
        first_s, *copies_s = times_s
        for copy_s in copies_s:
            heappush(self._held, (copy_s, next(self._order), replace(message)))
        if first_s > now_s:
            heappush(self._held, (first_s, next(self._order), message))
            return
        yield message
        self.malformed += message.finish()

    def _times_s(self, received: Received, now_s: float) -> tuple[float, ...]:
        """Return the times at which a message that arrived now is delivered."""
        try:
            source = decode_header(received.header)[0].source
        except RemoteProtocolError:
            return (now_s,)
        index = self._indices.get(source)
        if index is None:
            return (now_s,)
        # The time of sending is unknown; on one machine it is nearly the current time.
        return self._faults.arrivals(now_s, index, self._me, (now_s,))
