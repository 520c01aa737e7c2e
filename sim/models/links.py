"""When messages arrive: uplinks, latency, downlinks, and each link's own random effects."""

import math
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...gossip.errors import ConfigError
from ...gossip.transport.addresses import PORT, join_address
from ...gossip.types import PeerId
from ...topology.hashing import key, uniform
from .network import ALL, NetworkConfig

__all__ = ["INSTANT_S", "SPANS_MAX", "Links", "Port", "address_of"]


_LATE = 4.0
"""Maximum lateness of a copy, or of a message that is overtaken, in latencies."""

# One word per purpose, so that a message's draws for several are independent.
_LOSS, _JITTER, _REORDER, _LATENESS, _COPY, _COPY_LATENESS = (
    key(0, "links", purpose)
    for purpose in ("loss", "jitter", "reorder", "lateness", "copy", "copy's lateness")
)


SPANS_MAX = 8
"""Busy spans that a port remembers: longer messages pass through earlier gaps for free."""
INSTANT_S = 1e-9
"""Shorter times count as 0."""


def address_of(peer: PeerId) -> str:
    """Return the address at which a peer would listen: under virtual time, a mere name."""
    return join_address(peer, str(PORT))


class Port:
    """A resource that messages from several sides compete for: a downlink, or a shared line.

    A message arrives over the time that its bytes take, and time taken by others is added at the
    end; so a short message overtakes a long one still arriving.
    """

    __slots__ = ("_spans_s", "s_per_byte")

    def __init__(self, s_per_byte: float) -> None:
        self.s_per_byte = s_per_byte
        # Spans of time in which it was, or will be, busy; disjoint, in order.
        self._spans_s: deque[tuple[float, float]] = deque(maxlen=SPANS_MAX)

    def take(self, now: float, size_bytes: float) -> float:
        """Pass a message that would arrive at *now* on an idle port; return when it does."""
        spans_s, through_s = self._spans_s, now
        start_s = now - size_bytes * self.s_per_byte
        while spans_s and spans_s[-1][1] > start_s:
            busy_s, free_s = spans_s.pop()
            through_s += free_s - max(busy_s, start_s)
            start_s = min(busy_s, start_s)
        if through_s < now + INSTANT_S:
            through_s = now  # a rounding difference is not a queue
        spans_s.append((start_s, through_s))
        return through_s


@dataclass(slots=True, eq=False)
class _Way:
    """A link in use: its numbers, and what it has carried."""

    latency_s: float
    s_per_byte: float
    loss: float
    duplicates: float
    uses_uplink: bool
    ports: tuple[Port, ...]
    slowest_s: float  # seconds per byte of the slowest of these ports
    word: int
    free_s: float = 0.0
    last_s: float = 0.0
    count: int = 0


class Links:
    """The network between the workers of a swarm.

    Args:
        ids: The workers; random draws depend on ids, not on positions.
        header_weight: How many times each byte outside the model counts, if bandwidths are those of
            a smaller model: headers and member tables do not grow with it.
    """

    def __init__(
        self, config: NetworkConfig, ids: Sequence[str], seed: int, header_weight: float = 1.0
    ) -> None:
        self.header_weight = header_weight
        self._config = config
        self._ids = list(ids)
        self._seed = seed
        self._latency_s = config.latency_s
        # An id comes first: nodes of a file may have numbers for names.
        places = {str(index): index for index in range(len(ids))}
        places |= {id: index for index, id in enumerate(ids)}
        self._hosts, up, down = _hosts(config, ids, places)
        self._s_per_byte = array("d", map(_s_per_byte, up))
        self._free_s = array("d", [0.0] * len(ids))
        self.downlinks = [_ports(rate) for rate in down]
        """By worker, its host's downlink: at most one port."""

        self._exceptions = [
            (
                _ends(link.source, places, "links"),
                _ends(link.to, places, "links"),
                link,
                _ports(link.bandwidth_mbit if link.shared else None),
            )
            for link in config.links
        ]
        self.is_plain = not (config.links or config.hosts) and not (
            config.jitter or config.loss or config.duplicates or config.reorder
        )
        """True if all links are alike, and nothing is random."""
        down_s = _s_per_byte(config.downlink)
        # How much longer a byte takes to leave a downlink than to enter it.
        self._behind_s = max(down_s - _s_per_byte(config.bandwidth_mbit), 0.0)
        self._ways: dict[int, _Way] = {}
        has_downlinks = any(self.downlinks)
        has_rates = any(self._s_per_byte) or any(link.bandwidth_mbit for link in config.links)
        self.uses_sizes = has_downlinks or has_rates
        """True if a message's size affects when it arrives."""
        self.has_ports = has_downlinks or any(shared for *_, shared in self._exceptions)
        """True if there is any port that messages compete for."""

    @property
    def uniform(self) -> tuple[float, float, float] | None:
        """Latency, and time per byte up and down, seconds; None if links also differ otherwise."""
        if not self.is_plain or not self._ids:
            return None
        return self._latency_s, self._s_per_byte[0], _s_per_byte(self._config.downlink)

    def ports(self, source: int, to: int) -> tuple[Port, ...]:
        """Return the ports that a message passes after the uplink, in order."""
        return self.downlinks[to] if self.is_plain else self._way(source, to).ports

    def deliveries(self, now: float, source: int, to: int, size_bytes: float) -> tuple[float, ...]:
        """Return when a message that is sent now arrives, if all its `ports` are free.

        Args:
            now: Virtual time, in seconds; a worker's calls, and those of one host, are in order.

        Returns:
            Times of arrival, seconds: none if it is lost, two if it is duplicated, in order.
        """
        if self.is_plain:
            departure = self._free_s[source]
            if departure < now:
                departure = now
            departure += size_bytes * self._s_per_byte[source]
            self._free_s[source] = departure
            if self._behind_s:
                departure += size_bytes * self._behind_s
            return (departure + self._latency_s,)
        way = self._way(source, to)
        # All draws are functions of the seed, the purpose, the two ids and this number alone:
        # removing one fault shifts no other.
        number = way.count
        way.count += 1
        departure = self._depart(now, self._hosts[source], way, size_bytes)
        if way.loss and uniform(way.word ^ _LOSS, number) < way.loss:
            return ()
        arrivals = [self._arrive(departure, way, number)]
        if way.duplicates and uniform(way.word ^ _COPY, number) < way.duplicates:
            late = _LATE * uniform(way.word ^ _COPY_LATENESS, number)
            arrivals.append(arrivals[0] + late * way.latency_s)
        return tuple(arrivals)

    def _depart(self, now: float, host: int, way: _Way, size_bytes: float) -> float:
        """Return when the last byte has left; lost messages keep the uplink busy too."""
        start = now
        departure = now
        if way.uses_uplink:
            start = max(now, self._free_s[host])
            departure = self._free_s[host] = start + size_bytes * self._s_per_byte[host]
        if way.s_per_byte:
            # Bytes continue as they leave the uplink: the slower of the two decides.
            way.free_s = max(start, way.free_s) + size_bytes * way.s_per_byte
            departure = max(departure, way.free_s)
        return max(departure, start + size_bytes * way.slowest_s)

    def _arrive(self, departure: float, way: _Way, number: int) -> float:
        config = self._config
        arrival = departure + way.latency_s
        if config.jitter:
            excess = -math.log1p(-uniform(way.word ^ _JITTER, number))
            arrival += config.jitter * excess * way.latency_s
        if config.reorder and uniform(way.word ^ _REORDER, number) < config.reorder:
            # It delays no other message: otherwise it could not be overtaken.
            late = _LATE * uniform(way.word ^ _LATENESS, number)
            return max(arrival, way.last_s) + late * way.latency_s
        way.last_s = max(arrival, way.last_s)
        return way.last_s

    def _way(self, source: int, to: int) -> _Way:
        # Room for workers that join later.
        place = source << 32 | to
        if place in self._ways:
            return self._ways[place]
        config = self._config
        is_inside = self._hosts[source] == self._hosts[to]
        latency_s, loss = (0.0, 0.0) if is_inside else (config.latency_s, config.loss)
        bandwidth_mbit, ports = None, list[Port]()
        for sources, targets, link, shared in self._exceptions:
            if (sources is None or source in sources) and (targets is None or to in targets):
                latency_s = latency_s if link.latency_s is None else link.latency_s
                loss = loss if link.loss is None else link.loss
                if link.shared:
                    ports += shared
                else:
                    bandwidth_mbit = link.bandwidth_mbit or bandwidth_mbit
        if not is_inside:
            ports += self.downlinks[self._hosts[to]]
        way = self._ways[place] = _Way(
            latency_s=latency_s,
            s_per_byte=_s_per_byte(bandwidth_mbit),
            loss=loss,
            duplicates=0.0 if is_inside else config.duplicates,
            uses_uplink=not is_inside,
            ports=tuple(ports),
            slowest_s=max([port.s_per_byte for port in ports], default=0.0),
            word=key(self._seed, "links", self._ids[source], self._ids[to]),
        )
        return way


def _s_per_byte(bandwidth_mbit: float | None) -> float:
    return 0.0 if bandwidth_mbit is None else 8e-6 / bandwidth_mbit


def _ports(bandwidth_mbit: float | None) -> tuple[Port, ...]:
    s_per_byte = _s_per_byte(bandwidth_mbit)
    return (Port(s_per_byte),) if s_per_byte else ()


def _hosts(
    config: NetworkConfig, ids: Sequence[str], places: Mapping[str, int]
) -> tuple[list[int], list[float | None], list[float | None]]:
    """Return the host of each worker, and Mbit/s of each host's uplink and downlink."""
    hosts = list(range(len(ids)))
    up: list[float | None] = [config.bandwidth_mbit] * len(ids)
    down: list[float | None] = [config.downlink] * len(ids)
    taken: set[int] = set()
    for host in config.hosts:
        found = _ends(host.workers, places, "hosts")
        workers = sorted(range(len(ids)) if found is None else found)
        if twice := [ids[worker] for worker in workers if worker in taken]:
            raise ConfigError(f"network: hosts puts worker {twice[0]} on two hosts")
        taken.update(workers)
        # The first worker's number stands for the host.
        for worker in workers:
            hosts[worker] = workers[0]
        up[workers[0]] = host.bandwidth_mbit or config.bandwidth_mbit
        down[workers[0]] = host.downlink_mbit or host.bandwidth_mbit or config.downlink
    return hosts, up, down


def _ends(names: tuple[str, ...], places: Mapping[str, int], field: str) -> frozenset[int] | None:
    """Return the workers at one end of links, by index; None for all."""
    for name in names if names != ALL else ():
        if name not in places:
            raise ConfigError(
                f"network: {field} names worker {name!r}: it must be an id, or an index from 0 "
                f"to {len(set(places.values())) - 1}"
            )
    return None if names == ALL else frozenset(places[name] for name in names)
