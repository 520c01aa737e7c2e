"""Which rule for which machines: candidates simulated on measured peers and their network."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ...gossip.errors import ConfigError, RumorError, TrainingError
from ..config import SimulationConfig
from ..results.run import Run
from ..simulate import simulate
from ..study.statistics import differences, holm
from .calibration import Calibration

__all__ = ["CANDIDATES", "Advice", "Candidate", "advise"]

_MEDIAN: Final = 2
"""Position of the median among the five quantiles over workers."""

_DONE: Final = 0.95
"""How close to the best final loss the default target is, as a fraction of the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rule and its settings."""

    rule: str
    topology: str = "exponential"
    wire: str = "float32"

    @property
    def name(self) -> str:
        """Its name in a table."""
        wire = "" if self.wire == "float32" else f", {self.wire}"
        return f"{self.rule}, {self.topology}{wire}"

    @property
    def options(self) -> str:
        """Its settings, as options of ``rumor launch``, ``peer`` and ``simulate``."""
        wire = "" if self.wire == "float32" else f" --wire {self.wire}"
        return f"--rule {self.rule} --topology {self.topology}{wire}"


CANDIDATES: Final = (
    Candidate(rule="gosgd:p=0.1"),
    Candidate(rule="gosgd:p=0.5"),
    Candidate(rule="gosgd:p=0.1", wire="int8"),
    Candidate(rule="gosgd:p=0.02"),
    Candidate(rule="sgp"),
    Candidate(rule="adpsgd"),
    Candidate(rule="allreduce", topology="complete"),
    Candidate(rule="local-sgd:h=20", topology="complete"),
    Candidate(rule="diloco:h=20", topology="complete"),
    Candidate(rule="noloco:h=20", topology="random-matching"),
)
"""Default candidates: one or two settings of each family, from every step to rarely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How a candidate did on the measured peers; means over the seeds."""

    candidate: Candidate
    why: str = ""
    """Why it cannot be used here; empty if it can."""
    times_s: tuple[float | None, ...] = ()
    """Virtual time until the median peer's own model reached the target loss, seconds, by seed;
    None if it did not."""
    p: float | None = None
    """Probability that noise alone puts a candidate as far behind the best, corrected for the
    number of candidates; None for the best one, with one seed, or if a seed missed the target."""
    loss: float | None = None
    """Loss of the median peer's own model, at the end."""
    bytes_sent: float | None = None
    """Bytes sent by all peers until the target was reached, or in all if it was not."""

    @property
    def time_s(self) -> float | None:
        """Mean of `times_s`; None if a seed did not reach the target."""
        known = [time_s for time_s in self.times_s if time_s is not None]
        return float(np.mean(known)) if known and len(known) == len(self.times_s) else None


def advise(
    calibration: Calibration,
    *,
    candidates: Sequence[Candidate] = CANDIDATES,
    steps: int | None = None,
    seeds: int = 2,
    target: float | None = None,
    tell: Callable[[int, int, str], None] = lambda done, total, words: None,
) -> tuple[float, list[Advice]]:
    """Simulate candidates on measured peers, and rank them by their time to a loss.

    All take the same number of steps; the target is for the median peer's own model.

    Args:
        calibration: The measured peers.
        candidates: Candidates to simulate.
        steps: Optimizer steps of each peer; by default those of the measured run.
        seeds: Number of runs of each, >= 1.
        target: A loss; by default 95 % of the way from the first to the best last one.
        tell: Called with the number of finished runs, the number of all, and the name of the next.

    Returns:
        The target, and the candidates: those that reach it with every seed by their time, then the
            others by their loss, then those that fail. Times that differ by noise alone have a
            large p.

    Raises:
        ConfigError: An argument is out of range, or no candidate can be used.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}: it must be 1 or more")
    base = calibration.simulation()
    for name in ("p", "emission", "rule", "topology", "wire", "seed"):
        base.pop(name, None)
    if steps is not None:
        base |= {"steps": steps, "total_steps": None}
    runs: dict[Candidate, list[Run]] = {}
    refused = []
    for place, candidate in enumerate(candidates):
        tell(place * seeds, len(candidates) * seeds, candidate.options)
        try:
            runs[candidate] = _runs(base, candidate, seeds)
        except RumorError as error:
            why = str(error).partition("\n")[0]
            refused.append(Advice(candidate=candidate, why=why))
    tell(len(candidates) * seeds, len(candidates) * seeds, "")
    if not runs:
        raise ConfigError(f"no candidate can be used on these peers: {refused[0].why}")
    every = [run for each in runs.values() for run in each]
    if target is None:
        first = float(np.median([_losses(run)[1][0] for run in every]))
        best = min(float(_losses(run)[1][-1]) for run in every)
        target = first - _DONE * (first - best)
    found = sorted((_judged(*each, target) for each in runs.items()), key=_rank)
    grid_s = max(float(np.diff(run.series["time_s"]).max(initial=0.0)) for run in every)
    return target, _compared(found, grid_s) + refused


def _runs(base: dict[str, Any], candidate: Candidate, seeds: int) -> list[Run]:
    chosen = {"rule": candidate.rule, "topology": candidate.topology, "wire": candidate.wire}
    found = []
    for seed in range(seeds):
        found.append(simulate(SimulationConfig(**base | chosen | {"seed": seed})))
        if not len(_losses(found[-1])[1]):
            raise TrainingError(f"no loss was measured with seed {seed}: raise --steps")
    return found


def _losses(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and the median worker's loss at those at which it is known."""
    losses = run.series["loss_quantiles"][:, _MEDIAN]
    known = np.isfinite(losses)
    return run.series["time_s"][known], losses[known]


def _time_s(run: Run, target: float) -> float | None:
    times, losses = _losses(run)
    reached = np.flatnonzero(losses <= target)
    return float(times[reached[0]]) if len(reached) else None


def _judged(candidate: Candidate, runs: Sequence[Run], target: float) -> Advice:
    times, sent = [_time_s(run, target) for run in runs], []
    for run, time_s in zip(runs, times, strict=True):
        at = -1 if time_s is None else np.searchsorted(run.series["time_s"], time_s)
        sent.append(run.series["bytes_sent"][at])
    return Advice(
        candidate=candidate,
        times_s=tuple(times),
        loss=float(np.mean([_losses(run)[1][-1] for run in runs])),
        bytes_sent=float(np.mean(sent)),
    )


def _compared(found: Sequence[Advice], grid_s: float) -> list[Advice]:
    """Add p to each ranked candidate: how sure it is that it is slower than the first."""
    arrived = [dict(enumerate(a.times_s)) for a in found if a.time_s is not None]
    seconds = [{seed: s for seed, s in each.items() if s is not None} for each in arrived]
    if len(seconds) < 2:
        return list(found)
    gaps = differences(seconds[1:], seconds[0], resolution=grid_s)
    # The first candidate was chosen by the same runs.
    corrected = holm([gap.p for gap in gaps], family=math.comb(len(seconds), 2))
    known = [None if math.isnan(p) else p for p in corrected]
    compared = [replace(a, p=p) for a, p in zip(found[1:], known, strict=False)]
    return [found[0], *compared, *found[len(seconds) :]]


def _rank(advice: Advice) -> tuple[float, float]:
    assert advice.loss is not None
    return (math.inf if advice.time_s is None else advice.time_s), advice.loss
