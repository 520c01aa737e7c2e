"""Which rule for which machines: candidates simulated on peers and a network that were measured."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ...gossip.errors import ConfigError, RumorError, TrainingError
from ...gossip.weight import UNITS_PER_FOUNDER
from ..config import SimulationConfig
from ..results.run import Run
from ..simulate import simulate
from ..study.statistics import differences, holm
from .calibration import Calibration

__all__ = ["CANDIDATES", "RISKED", "Advice", "Candidate", "advise"]

_MEDIAN: Final = 2
"""Of the five quantiles over workers."""

_DONE: Final = 0.95
"""How much of the way to the best final loss the target is, unless one is given."""

_DEATH_AT: Final = 0.5
"""When a peer dies where that is tried, as a part of the time to the target."""

_HARMLESS: Final = {"at_s": 0.0, "kind": "continue", "peer": 0}
"""Lets peers find one another first, as they must where one may die: what a death costs is held
against a run that begins alike."""

RISKED: Final = 3
"""Of so many, the best ones, it is simulated what the death of a peer costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A way to train together."""

    rule: str
    topology: str = "exponential"
    wire: str = "float32"

    @property
    def name(self) -> str:
        """What to call it in a table."""
        return ", ".join(
            [self.rule, self.topology, *([self.wire] if self.wire != "float32" else [])]
        )

    @property
    def options(self) -> str:
        """As options of ``rumor launch``, ``peer`` and ``simulate``."""
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
"""What is tried: one or two settings of each family, from every step to seldom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How a candidate did on the measured peers; means over the seeds."""

    candidate: Candidate
    why: str = ""
    """Why it cannot be used here; empty where it can."""
    times_s: tuple[float | None, ...] = ()
    """Virtual time until the median peer's own model had the target loss, seconds, seed by seed;
    None where it did not."""
    p: float | None = None
    """Probability that noise alone puts a candidate as far behind the best, corrected for the
    number of candidates; None for the best one, with one seed, or if a seed missed the target.
    """
    loss: float | None = None
    """Of the median peer's own model, at the end."""
    bytes_sent: float | None = None
    """Of all peers until then, or in all where the target was not reached."""
    delay: float | None = None
    """How much longer the target takes if one peer dies half-way, as a part of the time without;
    None where it is not reached then, or was not tried."""
    weight_lost: float | None = None
    """What died with that peer, founders; None where it was not tried."""
    death_why: str = ""
    """Why the cost of that death is not known; empty where it is, or was not tried."""

    @property
    def time_s(self) -> float | None:
        """Mean of `times_s`; None where a seed did not reach the target."""
        return _mean(self.times_s)


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

    All take as many steps; the target is what the median peer's own model has to reach. Each of
    the best three is simulated again, with the death of a peer half-way and without.

    Args:
        calibration: Of the peers.
        candidates: What is tried.
        steps: Optimizer steps of each peer; those of the measured run unless given.
        seeds: How many runs of each, >= 1.
        target: A loss; 95 % of the way from the first to the best last one unless given.
        tell: Told how many runs are done, of how many, and which one is next.

    Returns:
        The target, and the candidates: those that reach it with every seed by their time, then the
        others by their loss, then those that fail. Times that differ by noise alone have a large p.

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
    done, total = 0, seeds * (len(candidates) + 2 * min(RISKED, len(candidates)))
    runs: dict[Candidate, list[Run]] = {}
    refused = []
    for candidate in candidates:
        tell(done, total, candidate.options)
        try:
            runs[candidate] = _runs(base, candidate, seeds)
        except RumorError as error:
            refused.append(Advice(candidate=candidate, why=_reason(error)))
        done += seeds
    if not runs:
        raise ConfigError(f"no candidate can be used on these peers: {refused[0].why}")
    target = _target(_all(runs)) if target is None else target
    found = sorted((_judged(*each, target) for each in runs.items()), key=_rank)
    grid_s = max(float(np.diff(run.series["time_s"]).max(initial=0.0)) for run in _all(runs))
    found = _compared(found, grid_s)
    for place, advice in enumerate(found[:RISKED]):
        tell(done, total, f"{advice.candidate.options}, with a death")
        found[place] = _with_death(advice, base, seeds, target)
        done += 2 * seeds
    tell(total, total, "")
    return target, found + refused


def _runs(base: dict[str, Any], candidate: Candidate, seeds: int, **more: Any) -> list[Run]:
    chosen = {"rule": candidate.rule, "topology": candidate.topology, "wire": candidate.wire}
    found = []
    for seed in range(seeds):
        found.append(simulate(SimulationConfig(**base | chosen | {"seed": seed} | more)))
        if not len(_losses(found[-1])[1]):
            raise TrainingError(f"no loss was measured with seed {seed}: raise --steps")
    return found


def _all(runs: Mapping[Candidate, Sequence[Run]]) -> list[Run]:
    return [run for each in runs.values() for run in each]


def _reason(error: RumorError) -> str:
    return str(error).partition("\n")[0]


def _losses(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the median worker's loss where it is known."""
    losses = run.series["loss_quantiles"][:, _MEDIAN]
    known = np.isfinite(losses)
    return run.series["time_s"][known], losses[known]


def _target(runs: Sequence[Run]) -> float:
    first = float(np.median([_losses(run)[1][0] for run in runs]))
    best = min(float(_losses(run)[1][-1]) for run in runs)
    return first - _DONE * (first - best)


def _time_s(run: Run, target: float) -> float | None:
    times, losses = _losses(run)
    reached = np.flatnonzero(losses <= target)
    return float(times[reached[0]]) if len(reached) else None


def _bytes(run: Run, time_s: float | None) -> float:
    sent, times = run.series["bytes_sent"], run.series["time_s"]
    return float(sent[-1] if time_s is None else sent[np.searchsorted(times, time_s)])


def _judged(candidate: Candidate, runs: Sequence[Run], target: float) -> Advice:
    times = [_time_s(run, target) for run in runs]
    pairs = zip(runs, times, strict=True)
    return Advice(
        candidate=candidate,
        times_s=tuple(times),
        loss=float(np.mean([_losses(run)[1][-1] for run in runs])),
        bytes_sent=float(np.mean([_bytes(run, time_s) for run, time_s in pairs])),
    )


def _compared(found: Sequence[Advice], grid_s: float) -> list[Advice]:
    """Add p to each ranked candidate: how sure it is that it is slower than the first.

    Args:
        found: In order.
        grid_s: Time between two measurements, seconds; times are not known more precisely.
    """
    arrived = [dict(enumerate(a.times_s)) for a in found if a.time_s is not None]
    seconds = [{seed: s for seed, s in each.items() if s is not None} for each in arrived]
    if len(seconds) < 2:
        return list(found)
    gaps = differences(seconds[1:], seconds[0], resolution=grid_s)
    # The first one was chosen by the same runs.
    corrected = holm([gap.p for gap in gaps], family=math.comb(len(seconds), 2))
    known = [None if math.isnan(p) else p for p in corrected]
    compared = [replace(a, p=p) for a, p in zip(found[1:], known, strict=False)]
    return [found[0], *compared, *found[len(seconds) :]]


def _mean(times: Sequence[float | None]) -> float | None:
    """None where one of them is, and of none."""
    known = [time_s for time_s in times if time_s is not None]
    return float(np.mean(known)) if known and len(known) == len(times) else None


def _rank(advice: Advice) -> tuple[float, float]:
    assert advice.loss is not None
    return (math.inf if advice.time_s is None else advice.time_s), advice.loss


def _with_death(advice: Advice, base: dict[str, Any], seeds: int, target: float) -> Advice:
    """The same, with what it costs that the last peer dies."""
    if advice.time_s is None or base["workers"] < 2:
        return advice
    try:
        calm = _runs(base, advice.candidate, seeds, faults=[_HARMLESS])
    except RumorError as error:
        return replace(advice, death_why=_reason(error))
    before_s = _mean([_time_s(run, target) for run in calm])
    if before_s is None:
        return replace(advice, death_why="the target is not reached where peers join one by one")
    death = {"at_s": _DEATH_AT * before_s, "kind": "crash", "peer": base["workers"] - 1}
    try:
        runs = _runs(base, advice.candidate, seeds, faults=[death])
    except TrainingError:  # a rule that cannot continue without a peer
        return replace(advice, weight_lost=0.0)
    except RumorError as error:
        return replace(advice, death_why=_reason(error))
    after_s = _mean([_time_s(run, target) for run in runs])
    lost = [run.summary["weight_units_died"] / UNITS_PER_FOUNDER for run in runs]
    return replace(
        advice,
        delay=None if after_s is None else after_s / before_s - 1,
        weight_lost=float(np.mean(lost)),
    )
