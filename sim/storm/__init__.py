"""Storms: failures of real fleets, drawn as fault schedules for a swarm of any size.

An event of a TOML file in ``presets/`` has

- a ``kind`` of fault, with its fields (``for_s``, ``factor``) as ranges, drawn from uniformly;
- its time: ``per_hour`` (a Poisson process), ``every_s``, or once ``at_s``, a range;
- its targets: ``each`` peer by itself, a number of ``peers`` drawn among those that are up (below
  1, a part of them), or all of a ``site`` of the network;
- ``back_s``: how long after a crash or a leave the peer starts again, with its ``state``, or a
  newcomer takes its place.
"""

import math
import tomllib
from bisect import insort
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any, Final, NamedTuple

import numpy as np

from ...gossip.errors import ConfigError, did_you_mean
from ...gossip.types import stream
from ...train.faults.schedule import Fault, read_faults, resolve

__all__ = ["STORMS", "Storm", "draw_storm", "list_storms", "read_storm"]

_FOLDER: Final = Path(__file__).with_name("presets")

STORMS: Final = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
"""Names of all storms."""

_Event = dict[str, Any]


class Storm(NamedTuple):
    """The effects of a storm on one swarm."""

    faults: tuple[Fault, ...]
    """In order of time; peers by position, newcomers by name."""
    network: dict[str, Any] | None
    """As in a network's file; None if the storm has no network."""


@cache
def read_storm(name: str) -> dict[str, Any]:
    """Read the file of a storm, or raise a ConfigError."""
    if name not in STORMS:
        hint = did_you_mean(name, STORMS)
        raise ConfigError(f"unknown storm {name!r}{hint} It must be {', '.join(STORMS)}")
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def list_storms() -> str:
    """List all storms, with what they model, for a terminal."""
    width = max(map(len, STORMS)) + 2
    return "\n".join(
        fill(f"{name:{width}}{read_storm(name)['what']}", 80, subsequent_indent=" " * width)
        for name in STORMS
    )


def draw_storm(
    name: str, peers: int, duration_s: float, seed: int = 0, *, scale: float = 1.0
) -> Storm:
    """Draw the faults of a swarm; the same arguments give the same faults.

    Args:
        name: One of `STORMS`.
        peers: Number of peers at the start.
        duration_s: Length of the run, seconds.
        scale: Factor by which everything goes faster: with 60, an hour of the storm strikes within
            a minute. Bandwidths and factors stay as they are.

    Raises:
        ConfigError: The storm is unknown.

    >>> drawn = draw_storm("torchft-60s", 30, 600.0)
    >>> [fault.kind for fault in drawn.faults][:4]
    ['crash', 'restart', 'crash', 'restart']
    """
    storm = read_storm(name)
    rng, whole_s, network = stream(seed, "storm", name), duration_s * scale, storm.get("network")
    swarm = _Swarm(peers, (network or {}).get("sites", 1))
    moments = [
        (at_s, number, peer)
        for number, event in enumerate(storm["event"])
        for at_s, peer in _moments(event, peers, whole_s, rng)
    ]
    for at_s, number, peer in sorted(moments):
        swarm.strike(storm["event"][number], at_s, peer, rng)
    swarm.bring_back(math.inf)
    rows = sorted(swarm.rows, key=lambda row: float(row["at_s"]))
    rows = [row for row in rows if row["at_s"] < whole_s]
    for row in rows:
        row |= {name: _rounded(row[name] / scale) for name in ("at_s", "for_s") if name in row}
    faults = read_faults(rows)
    resolve(faults, [str(index) for index in range(peers)])
    return Storm(faults, None if network is None else _network(network, peers, rng))


def _moments(
    event: _Event, peers: int, whole_s: float, rng: np.random.Generator
) -> Iterator[tuple[float, int]]:
    """Yield when an event happens, and to which peer; -1 without ``each``."""
    is_of_each = event.get("each", False)
    for peer in range(peers) if is_of_each else (-1,):
        if "at_s" in event:
            yield float(rng.uniform(*event["at_s"])), peer
        elif (every_s := event.get("every_s")) is not None:
            # Events of single peers have no common beginning.
            begin_s = rng.uniform(0, every_s) if is_of_each else every_s
            for at_s in np.arange(begin_s, whole_s, every_s):
                yield float(at_s), peer
        else:
            mean_s = 3600 / event["per_hour"]
            at_s = rng.exponential(mean_s)
            while at_s < whole_s:
                yield float(at_s), peer
                at_s += rng.exponential(mean_s)


class _Swarm:
    """The peers that are up while a storm is drawn."""

    def __init__(self, peers: int, sites: int) -> None:
        self._sites = sites
        self._up: list[int | str] = list(range(peers))
        self._back: list[tuple[float, int, dict[str, Any], int | str]] = []
        self._joined = 0
        self.rows: list[dict[str, Any]] = []

    def strike(self, event: _Event, at_s: float, peer: int, rng: np.random.Generator) -> None:
        """Apply an event to *peer*, or to drawn peers if that is -1; not to peers that are down."""
        self.bring_back(at_s)
        victims = self._victims(event, rng) if peer < 0 else [peer] if peer in self._up else []
        if not victims:
            return
        row: dict[str, Any] = {"at_s": at_s, "kind": event["kind"]}
        row |= {n: float(rng.uniform(*event[n])) for n in ("for_s", "factor") if n in event}
        if event["kind"] == "partition":
            self.rows.append(row | {"groups": [victims]})
            return
        for victim in victims:
            self.rows.append(row | {"peer": victim})
            if "back_s" not in event:
                continue
            self._up.remove(victim)
            back_s = at_s + float(rng.uniform(*event["back_s"]))
            back: dict[str, Any] = {"at_s": back_s, "kind": "join"}
            if event["kind"] == "crash":
                state = event.get("state", "kept")
                back |= {"kind": "restart", "peer": victim, "state": state}
            # Peers with the same time come back in the order in which they went down.
            insort(self._back, (back_s, len(self.rows), back, victim), key=lambda each: each[:2])

    def _victims(self, event: _Event, rng: np.random.Generator) -> list[int | str]:
        """Draw at least one peer, and never all: some peer must keep the model."""
        if event.get("site"):
            site = rng.integers(self._sites)
            there: list[int | str] = [
                peer for peer in self._up if isinstance(peer, int) and peer % self._sites == site
            ]
            return there if len(there) < len(self._up) else []
        low, high = event.get("peers", (1.0, 1.0))
        count = rng.uniform(low, high)
        wanted = round(count * len(self._up)) if high < 1 else round(count)
        most = min(max(wanted, 1), len(self._up) - 1)
        drawn = rng.choice(len(self._up), size=max(most, 0), replace=False)
        return [self._up[place] for place in sorted(drawn.tolist())]

    def bring_back(self, at_s: float) -> None:
        """Mark peers as up whose time has come by *at_s*."""
        while self._back and self._back[0][0] <= at_s:
            _, _, row, who = self._back.pop(0)
            self.rows.append(row)
            if row["kind"] == "join":
                self._joined += 1
                who = f"join-{self._joined}"
            self._up.append(who)


def _network(network: dict[str, Any], peers: int, rng: np.random.Generator) -> dict[str, Any]:
    """Draw a network, as in a file: uplinks of each peer, or lines between sites."""
    if "uplink_mbit" in network:
        names = {"bandwidth_mbit": "uplink_mbit", "downlink_mbit": "downlink_mbit"}
        hosts = [
            {"workers": [peer]}
            | {name: round(rng.uniform(*network[of]), 1) for name, of in names.items()}
            for peer in range(peers)
        ]
        return {"preset": network["preset"], "hosts": hosts}
    links, sites = [], network["sites"]
    for source in range(sites):
        for to in range(sites):
            if source != to:
                latency_s = round(rng.uniform(*network["site_latency_s"]), 4)
                # Equal steps in the logarithm: a slow line is as likely as a fast one.
                mbit = np.exp(rng.uniform(*np.log(network["site_mbit"])))
                ends = {"from": [*range(source, peers, sites)], "to": [*range(to, peers, sites)]}
                speed = {"bandwidth_mbit": round(float(mbit)), "shared": True}
                links.append(ends | {"latency_s": latency_s} | speed)
    return {"preset": network["preset"], "links": links}


def _rounded(seconds: float) -> float:
    # Rounded to 0, a short duration would mean none.
    return max(round(seconds, 3), 0.001) if seconds else 0.0
