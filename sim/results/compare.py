"""Compares a live run with a simulation of it, figure by figure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...gossip.errors import ConfigError
from .live_run import LiveRun
from .run import Run

__all__ = ["Figure", "SideBySide", "put_side_by_side"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of both runs."""

    name: str
    unit: str
    live: float | None
    """None if the run lacks the figure or never reached it."""
    simulated: float | None

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
        """True if every figure agrees that either run has."""
        return all(figure.agrees(self.tolerance) is not False for figure in self.figures)

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
    differences: Sequence[str] = (),
) -> SideBySide:
    """Compare a live run with its prediction.

    Args:
        target: The accuracy whose time is compared, in (0, 1].
        tolerance: Part of the live figure by which a simulated one may differ.
        live_consensus: Consensus distance of the live models over the later half of the stretch;
            None if it was not measured.
        differences: Descriptions of settings that differed.

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
            Figure(name=f"time to {target:g}", unit="s", live=found, simulated=predicted),
            *_consensus(simulated, seconds, live_consensus),
        ),
        differences=tuple(differences),
    )


def _rates(live: LiveRun, simulated: Run, seconds: float) -> Iterator[Figure]:
    series = simulated.series

    def at_end(name: str) -> float:
        return float(np.interp(seconds, series["time_s"], series[name])) if name in series else 0.0

    def rate(name: str, unit: str, count: float, predicted: float) -> Figure:
        return Figure(name=name, unit=unit, live=count / seconds, simulated=predicted / seconds)

    steps = sum(live.steps(peer, seconds) for peer in live.peers)
    yield rate("steps/s", "1/s", steps, len(live.peers) * at_end("steps"))
    pushes, sent, membership = (
        live.count(name, seconds) for name in ("pushes", "bytes_sent", "membership_bytes")
    )
    if pushes is not None and "pushes" in series:
        yield rate("pushes/s", "1/s", pushes, at_end("pushes"))
    if sent is not None:
        # Without faults a simulation knows which workers live, so that no message reports it.
        predicted = at_end("bytes_sent")
        if membership is None:
            yield rate("bytes/s", "B/s", sent, predicted)
        else:
            predicted -= at_end("membership_bytes")
            yield rate("bytes/s without membership", "B/s", sent - membership, predicted)


def _consensus(simulated: Run, seconds: float, live: float | None) -> Iterator[Figure]:
    times = simulated.series["time_s"]
    apart = simulated.series["consensus_distance"][(times >= seconds / 2) & (times <= seconds)]
    # Live, the distance comes from sketches, if any.
    if live is not None and len(apart) and np.isfinite(apart).all():
        mean = float(np.mean(apart))
        yield Figure(name="consensus distance", unit="", live=live, simulated=mean)


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
