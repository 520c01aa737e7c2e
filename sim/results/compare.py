"""Compares a live run with a simulation of it, figure by figure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import shards_of
from ...gossip.rules.registry import make_rule
from ...topology import TopologyError, parse
from .live_run import LiveRun
from .run import Run

__all__ = ["Figure", "SideBySide", "put_side_by_side"]

_SETTINGS: Final = (
    *("task", "rule", "topology", "p", "emission", "partition", "seed", "wire", "shards"),
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of both runs."""

    name: str
    unit: str
    live: float | None
    """None if the run lacks the figure or never reached it."""
    simulated: float | None
    judged: bool = True
    """True if the verdict counts it."""

    @property
    def ratio(self) -> float | None:
        """Simulated over live; None if undefined."""
        if not self.live or self.simulated is None:
            return None
        return self.simulated / self.live

    def agrees(self, tolerance: float) -> bool | None:
        """True if the simulated figure is within *tolerance* of the live one, a part of it; None if
        neither run has the figure."""
        if self.live is None and self.simulated is None:
            return None
        if self.live is None or self.simulated is None:
            return False
        return abs(self.simulated - self.live) <= tolerance * abs(self.live)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """All figures of both runs, and the verdict."""

    seconds: float
    """Length of the compared stretch from the start, in which all trained in both runs."""
    tolerance: float
    """Part of the live figure by which a simulated one may differ."""
    figures: tuple[Figure, ...]
    differences: tuple[str, ...]
    """Descriptions of settings that differed."""

    @property
    def agrees(self) -> bool:
        """True if every judged figure agrees."""
        return all(f.agrees(self.tolerance) is not False for f in self.figures if f.judged)

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        figures = [
            asdict(one) | {"ratio": one.ratio, "agrees": one.agrees(self.tolerance)}
            for one in self.figures
        ]
        return asdict(self) | {"agrees": self.agrees, "figures": figures}


def put_side_by_side(
    live: LiveRun,
    simulated: Run,
    *,
    target: float = 0.9,
    tolerance: float = 0.2,
    live_consensus: float | None = None,
) -> SideBySide:
    """Compare a live run with its prediction.

    Args:
        target: The accuracy whose time is compared, in (0, 1].
        tolerance: Part of the live figure by which a simulated one may differ.
        live_consensus: Consensus distance of the live models over the later half of the stretch.

    Raises:
        ConfigError: The numbers of peers differ.
    """
    if len(live.peers) != simulated.summary.get("workers"):
        raise ConfigError(
            f"{live.folder} is of {len(live.peers)} peers, and the simulation of "
            f"{simulated.summary.get('workers')} workers: compare runs of as many"
        )
    times = simulated.series["time_s"]
    # A simulation leaves out what finished peers do afterwards, to agree.
    seconds = min(live.trained_s, float(times[-1]))
    if not seconds > 0:
        raise ConfigError("the simulation has not moved in time: there is nothing to compare")
    # The median peer's own model counts, since the merged model is not measured live.
    found, predicted = _first(*_median_accuracy(live), target), None
    if (quantiles := simulated.series.get("accuracy_quantiles")) is not None:
        predicted = _first(times, quantiles[:, 2], target)
    return SideBySide(
        seconds=seconds,
        tolerance=tolerance,
        figures=(
            *_rates(live, simulated, seconds),
            *_of_peers(live, simulated),
            Figure(name=f"time to {target:g}", unit="s", live=found, simulated=predicted),
            *_quality(live, simulated, seconds, live_consensus),
        ),
        differences=tuple(_differences(live, simulated.summary)),
    )


def _rates(live: LiveRun, simulated: Run, seconds: float) -> list[Figure]:
    series, found = simulated.series, []

    def at_end(name: str) -> float:
        return float(np.interp(seconds, series["time_s"], series[name]))

    def add(name: str, unit: str, count: float | None, other: float, judged: bool = True) -> None:
        live_rate = None if count is None else count / seconds
        found.append(
            Figure(name=name, unit=unit, live=live_rate, simulated=other / seconds, judged=judged)
        )

    steps = sum(live.steps(peer, seconds) for peer in live.peers)
    add("steps/s", "1/s", steps, len(live.peers) * at_end("steps"))
    pushes = live.count("pushes", seconds)
    if pushes is not None and "pushes" in series:
        add("pushes/s", "1/s", pushes, at_end("pushes"))
    # Without faults a simulation knows which workers live, so that no message reports it.
    sent, gossip = (live.count(name, seconds) for name in ("bytes_sent", "membership_bytes"))
    both_known = sent is not None and gossip is not None
    there = at_end("bytes_sent")
    add("bytes/s", "B/s", sent, there, judged=not both_known)
    if sent is not None and gossip is not None:
        membership = at_end("membership_bytes") if "membership_bytes" in series else 0.0
        add("bytes/s without membership", "B/s", sent - gossip, there - membership)
    return found


def _of_peers(live: LiveRun, simulated: Run) -> list[Figure]:
    """Steps per second of each peer, if all stopped at once, so that counts give rates."""
    steps, end_s = simulated.workers["steps"], float(simulated.series["time_s"][-1])
    if len(set(steps.tolist())) == 1 and len(live.peers) > 1:
        return []
    ends = [(peer, float(live.times(peer)[-1])) for peer in live.peers]
    return [
        Figure(
            name=f"steps/s of {peer.id}",
            unit="1/s",
            live=live.steps(peer, live_end_s) / live_end_s,
            simulated=float(count) / end_s,
        )
        for (peer, live_end_s), count in zip(ends, steps, strict=False)
    ]


def _quality(
    live: LiveRun, simulated: Run, seconds: float, live_consensus: float | None
) -> list[Figure]:
    found = []
    for name in ("accuracy", "loss"):
        both = {"live": (live.summary or {}).get(name), "simulated": simulated.summary.get(name)}
        if any(value is not None for value in both.values()):
            found.append(Figure(name=f"final {name}", unit="", judged=False, **both))
    times = simulated.series["time_s"]
    apart = simulated.series["consensus_distance"][(times >= seconds / 2) & (times <= seconds)]
    mean = float(np.mean(apart)) if len(apart) and np.isfinite(apart).all() else None
    # Live, the distance comes from sketches, if any.
    judged = live_consensus is not None and mean is not None
    both = {"live": live_consensus, "simulated": mean}
    return [*found, Figure(name="consensus distance", unit="", judged=judged, **both)]


def _median_accuracy(live: LiveRun) -> tuple[Floats, Floats]:
    """Return seconds, and the median of the peers' own accuracies there."""
    curves = []
    for peer in live.peers:
        values = np.array([row.get("accuracy") for row in peer.rows], np.float64)
        measured = np.isfinite(values)
        if measured.any():
            curves.append((live.times(peer)[measured], values[measured]))
    if not curves:
        return np.empty(0), np.empty(0)
    instants = np.unique(np.concatenate([times for times, _ in curves]))
    # A peer counts as untrained before its first measurement.
    own = [
        np.interp(instants, np.append(0.0, times), np.append(0.0, each)) for times, each in curves
    ]
    return instants, np.median(own, axis=0)


def _first(times: Floats, values: Floats, target: float) -> float | None:
    """Return when *values* first reach *target*, interpolated linearly; None if never."""
    reached = np.flatnonzero(values >= target)
    if not len(reached):
        return None
    at = int(reached[0])
    if at == 0:
        return float(times[0])
    part = (target - values[at - 1]) / (values[at] - values[at - 1])
    return float(times[at - 1] + part * (times[at] - times[at - 1]))


def _differences(live: LiveRun, summary: Mapping[str, Any]) -> list[str]:
    """Describe settings that differ, as far as both runs report them."""
    told = dict(live.peers[0].options)
    # Topology and rule as in a simulation's summary; not compared where they are unknown.
    try:
        spec, seed = str(told.get("topology")), int(told.get("seed") or 0)
        told["topology"] = parse(spec, len(live.peers), seed=seed).spec
    except TopologyError:
        told["topology"] = None
    try:
        emission = told.get("emission") or "per-step"
        rule = make_rule(str(told.get("rule", "gosgd")), told.get("p"), emission)
        told |= {name: getattr(rule, name, told.get(name)) for name in ("p", "emission")}
        # Some rules cut the vector themselves.
        told |= {"rule": rule.name, "shards": shards_of(rule, told.get("shards") or 1)}
    except ConfigError:
        pass
    if live.summary is not None:
        # The summary has the value that a rule chose for an option without one.
        told["p"] = live.summary.get("p", told.get("p"))
    return [
        f"{name} is {summary[name]!r} in the simulation, and was {told[name]!r}"
        for name in _SETTINGS
        if told.get(name) is not None
        and summary.get(name) is not None
        and summary[name] != told[name]
    ]
