"""Storms: what goes wrong with real fleets, drawn as fault schedules for a swarm of any size.

A storm is a TOML file: what it models, its source, and random events, such as a crash so many
times an hour. From a number of peers, a time and a seed it is drawn as a list of faults, which
simulations, campaigns and live swarms take alike, and as a network where it has one.
"""

import json
import math
import tomllib
from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import numpy as np

from ...gossip.errors import ConfigError, did_you_mean
from ...gossip.types import stream
from ...train.faults.schedule import Fault, check_faults, read_faults
from ..models.network import PRESETS
from ..models.tables import from_table

__all__ = ["STORMS", "Drawn", "Event", "Storm", "StormNetwork", "list_storms", "read_storm"]

_FOLDER: Final = Path(__file__).with_name("presets")

STORMS: Final = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
"""Names of those that come with this package."""

Range = tuple[float, float]
"""The least and the most of what is drawn uniformly."""

_HOUR_S: Final = 3600.0

_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "crash": ("back_s", "state"),
    "leave": ("back_s",),
    "pause": ("for_s",),
    "partition": ("for_s",),
    "cut": ("for_s",),
    "slow": ("factor", "for_s"),
    "loss": ("rate", "for_s"),
    "delay": ("by_s", "for_s"),
    "reset": ("for_s",),
}
"""Kinds of fault that an event may be of, and what each takes."""

_RANGES: Final = ("at_s", "peers", "for_s", "back_s", "factor", "by_s", "rate")
_TIMES: Final = ("at_s", "for_s", "by_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens to peers drawn at random among those that are up.

    Raises:
        ConfigError: A field is out of range, or when it happens is not said, or said twice.
    """

    kind: str
    """Of fault: crash, leave, pause, partition, cut, slow, loss, delay or reset."""

    per_hour: float | None = None
    """How often in the mean, at times of a Poisson process."""

    every_s: float | None = None
    """Or at equal distances, seconds."""

    at_s: Range | None = None
    """Or once, at a time drawn from this range, seconds."""

    each: bool = False
    """Whether all that is meant of every peer by itself, not of the swarm as a whole."""

    peers: Range = (1.0, 1.0)
    """How many peers it strikes at once; below 1, a part of those that are up."""

    site: bool = False
    """Whether it strikes all peers of a site of the network, drawn at random."""

    for_s: Range | None = None
    """How long it lasts, seconds; to the end unless given."""

    back_s: Range | None = None
    """After a crash or a leave, how long until the peer starts again, or a newcomer in its place,
    seconds; never unless given."""

    state: str | None = None
    """Whether a peer that crashed starts from its last checkpoint, ``kept``, which it does unless
    given, or with nothing, ``lost``."""

    factor: Range | None = None
    """How many times as long steps take (``slow``)."""

    by_s: Range | None = None
    """How much later messages come (``delay``), seconds."""

    rate: Range | None = None
    """Probability for each message (``loss``)."""

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ConfigError(f"kind is {self.kind!r}: it must be one of {', '.join(_KINDS)}")
        when = [name for name in ("per_hour", "every_s", "at_s") if getattr(self, name) is not None]
        if len(when) != 1:
            told = " and ".join(when) or "none of them"
            raise ConfigError(f"it needs one of per_hour, every_s and at_s, and has {told}")
        for name in ("per_hour", "every_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} is {value}: it must be a number above 0")
        for name in _RANGES:
            low, high = getattr(self, name) or (0.0, 0.0)
            if not 0 <= low <= high < math.inf:
                raise ConfigError(f"{name} is {[low, high]}: it must be the least and the most")
        for name in {name for takes in _KINDS.values() for name in takes} - {*_KINDS[self.kind]}:
            if getattr(self, name) is not None:
                raise ConfigError(f"{self.kind} takes no {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StormNetwork:
    """Between whom messages pass how fast.

    Raises:
        ConfigError: A field is out of range.
    """

    preset: str = "wan"
    """What holds where nothing else is said, a key of `rumor.sim.models.network.PRESETS`."""

    uplink_mbit: Range | None = None
    """Of each peer's own uplink, Mbit/s."""

    downlink_mbit: Range | None = None
    """Of its downlink, Mbit/s."""

    sites: int = 1
    """Places over which peers are spread evenly, one after another."""

    site_mbit: Range | None = None
    """Of the line from one site to another, Mbit/s, each way, which all its peers share."""

    site_latency_s: Range | None = None
    """Of that line, one way, seconds."""

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ConfigError(f"preset is {self.preset!r}: it must be one of {', '.join(PRESETS)}")
        if self.sites < 1:
            raise ConfigError(f"sites is {self.sites}: it must be 1 or more")
        for name in ("uplink_mbit", "downlink_mbit", "site_mbit", "site_latency_s"):
            low, high = getattr(self, name) or (1.0, 1.0)
            if not 0 < low <= high < math.inf:
                raise ConfigError(f"{name} is {[low, high]}: it must be the least and the most")

    def draw(self, peers: int, rng: np.random.Generator) -> dict[str, Any]:
        """A network of so many peers, as a file has it."""
        found: dict[str, Any] = {"preset": self.preset}
        if self.uplink_mbit or self.downlink_mbit:
            found["hosts"] = [self._host(peer, rng) for peer in range(peers)]
        if self.sites > 1:
            found["links"] = [
                self._line(peers, source, to, rng)
                for source in range(self.sites)
                for to in range(self.sites)
                if source != to
            ]
        return found

    def _host(self, peer: int, rng: np.random.Generator) -> dict[str, Any]:
        ranges = {"bandwidth_mbit": self.uplink_mbit, "downlink_mbit": self.downlink_mbit}
        drawn = {name: round(rng.uniform(*each), 1) for name, each in ranges.items() if each}
        return {"workers": [peer]} | drawn

    def _line(self, peers: int, source: int, to: int, rng: np.random.Generator) -> dict[str, Any]:
        line: dict[str, Any] = {
            "from": list(range(source, peers, self.sites)),
            "to": list(range(to, peers, self.sites)),
        }
        if self.site_latency_s:
            line["latency_s"] = round(rng.uniform(*self.site_latency_s), 4)
        if self.site_mbit:
            # Equal steps in the logarithm: a slow line is as likely as a fast one.
            low, high = np.log(self.site_mbit)
            line |= {"bandwidth_mbit": round(float(np.exp(rng.uniform(low, high)))), "shared": True}
        return line


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A storm as it strikes one swarm."""

    faults: tuple[Fault, ...]
    """In order of time; peers by position, newcomers by name."""
    network: dict[str, Any] | None
    """As a network's file has it; None where the storm says nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """What goes wrong, and how often."""

    name: str = field(default="", metadata={"key": None})
    what: str
    """What it models, in a sentence or two."""
    source: str
    """Who measured it or used it, and what is a guess."""
    peers: int
    """Members of the swarm that it was seen in, or is meant for."""
    events: tuple[Event, ...] = field(default=(), metadata={"key": "event"})
    network: StormNetwork | None = None

    def draw(self, peers: int, duration_s: float, seed: int = 0, *, scale: float = 1.0) -> Drawn:
        """Draw what happens to a swarm; the same arguments give the same faults.

        Args:
            peers: How many there are at the start.
            duration_s: How long it lasts, seconds of the run.
            seed: Of everything random.
            scale: How many times as fast all of it goes: with 60, an hour of the storm strikes
                within a minute. Bandwidths and factors stay as they are.

        Raises:
            ConfigError: An argument is out of range.

        >>> drawn = read_storm("torchft-60s").draw(30, 600.0)
        >>> [fault.kind for fault in drawn.faults][:4]
        ['crash', 'restart', 'crash', 'restart']
        """
        for name, value in (("peers", peers), ("duration_s", duration_s), ("scale", scale)):
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} is {value}: it must be a number above 0")
        rng, whole_s = stream(seed, "storm", self.name), duration_s * scale
        swarm = _Swarm(peers, 1 if self.network is None else self.network.sites)
        moments = [
            (at_s, number, peer)
            for number, event in enumerate(self.events)
            for at_s, peer in _moments(event, peers, whole_s, rng)
        ]
        for at_s, number, peer in sorted(moments):
            swarm.strike(self.events[number], at_s, peer, rng)
        swarm.bring_back(math.inf)
        rows = sorted(swarm.rows, key=lambda row: float(row["at_s"]))
        rows = [row for row in rows if row["at_s"] < whole_s]
        for row in rows:
            row |= {name: _rounded(row[name] / scale) for name in _TIMES if name in row}
        faults = read_faults(json.dumps(rows))
        check_faults(faults, [str(index) for index in range(peers)])
        network = None if self.network is None else self.network.draw(peers, rng)
        return Drawn(faults=faults, network=network)


def read_storm(text: str) -> Storm:
    """Find a storm by name, or read it from a file::

        what = "One member after another loses power."
        source = "my own logs of May"
        peers = 16

        [[event]]
        kind = "crash"
        per_hour = 4
        back_s = [60, 600]

        [network]
        uplink_mbit = [10, 50]

    Fields of an event are those of `Event`, those of the network of `StormNetwork`.

    Args:
        text: One of `STORMS`, or the path of a TOML file.

    Raises:
        ConfigError: It is neither, or the file is not as above; the message names the field.
    """
    path = _FOLDER / f"{text}.toml" if text in STORMS else Path(text)
    if path.suffix != ".toml":
        hint = did_you_mean(text, STORMS)
        raise ConfigError(
            f"unknown storm {text!r}{hint} It must be {', '.join(STORMS)} or a .toml file"
        )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return replace(from_table(Storm, content), name=path.stem)
    except OSError as error:
        raise ConfigError(f"storm {path} cannot be read: {error.strerror}") from error
    except (ValueError, ConfigError) as error:  # no TOML, no UTF-8, or of another form
        raise ConfigError(f"storm {path}: {error}") from None


def list_storms() -> str:
    """All storms that come with this package, and what they model, for a terminal."""
    width = max(map(len, STORMS)) + 2
    return "\n".join(
        fill(
            f"{name:{width}}{' '.join(read_storm(name).what.split())}",
            80,
            subsequent_indent=" " * width,
        )
        for name in STORMS
    )


def _moments(
    event: Event, peers: int, whole_s: float, rng: np.random.Generator
) -> Iterator[tuple[float, int]]:
    """When an event happens, and to whom if it is meant of each peer; -1 for the swarm."""
    for peer in range(peers) if event.each else (-1,):
        if event.at_s is not None:
            yield float(rng.uniform(*event.at_s)), peer
        elif event.every_s is not None:
            # Peers by themselves have no common beginning.
            begin_s = rng.uniform(0, event.every_s) if event.each else event.every_s
            for at_s in np.arange(begin_s, whole_s, event.every_s):
                yield float(at_s), peer
        else:
            assert event.per_hour is not None
            at_s = rng.exponential(_HOUR_S / event.per_hour)
            while at_s < whole_s:
                yield float(at_s), peer
                at_s += rng.exponential(_HOUR_S / event.per_hour)


class _Swarm:
    """Who is up while a storm is drawn."""

    def __init__(self, peers: int, sites: int) -> None:
        self._sites = sites
        self._up: list[int | str] = list(range(peers))
        self._back: list[tuple[float, int, dict[str, Any], int | str]] = []
        self._joined = 0
        self.rows: list[dict[str, Any]] = []

    def strike(self, event: Event, at_s: float, peer: int, rng: np.random.Generator) -> None:
        """Let an event happen, to *peer* or, where that is -1, to whom is drawn; nobody if down."""
        self.bring_back(at_s)
        victims = self._victims(event, rng) if peer < 0 else [peer] if peer in self._up else []
        if not victims:
            return
        row: dict[str, Any] = {"at_s": at_s, "kind": event.kind}
        for name in ("for_s", "factor", "by_s", "rate"):
            if (between := getattr(event, name)) is not None:
                row[name] = float(rng.uniform(*between))
        if event.kind == "partition":
            self.rows.append(row | {"groups": [victims]})
            return
        for victim in victims:
            self.rows.append(row | {"peer": victim})
            if event.kind in ("crash", "leave"):
                self._up.remove(victim)
                if event.back_s is None:
                    continue
                back_s = at_s + float(rng.uniform(*event.back_s))
                back: dict[str, Any] = {"at_s": back_s, "kind": "join"}
                if event.kind == "crash":
                    state = event.state or "kept"
                    back |= {"kind": "restart", "peer": victim, "state": state}
                # Of one time, in the order in which they went.
                place = back_s, len(self.rows), back, victim
                insort(self._back, place, key=lambda each: each[:2])

    def _victims(self, event: Event, rng: np.random.Generator) -> list[int | str]:
        """At least one, and never all: nobody is left to go on with the model then."""
        if event.site:
            site = rng.integers(self._sites)
            there: list[int | str] = [
                peer for peer in self._up if isinstance(peer, int) and peer % self._sites == site
            ]
            return there if len(there) < len(self._up) else []
        count = rng.uniform(*event.peers)
        wanted = round(count * len(self._up)) if event.peers[1] < 1 else round(count)
        most = min(max(wanted, 1), len(self._up) - 1)
        drawn = rng.choice(len(self._up), size=max(most, 0), replace=False)
        return [self._up[place] for place in sorted(drawn.tolist())]

    def bring_back(self, at_s: float) -> None:
        """Let those be up again whose time has come by *at_s*."""
        while self._back and self._back[0][0] <= at_s:
            _, _, row, who = self._back.pop(0)
            self.rows.append(row)
            if row["kind"] == "join":
                self._joined += 1
                who = f"join-{self._joined}"
            self._up.append(who)


def _rounded(seconds: float) -> float:
    # A duration of 0 is none.
    return max(round(seconds, 3), 0.001) if seconds else 0.0
