"""Which rule, p, topology and wire suit some machines: a study that grows where it is best."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_high, median_low
from typing import Any, Final, cast

from ...gossip.errors import ConfigError
from ...gossip.rules.registry import read_rule, spec_of
from ..calibration import Calibration
from ..config import SimulationConfig
from .analysis.ranking import Comparison, Row, Verdict, compare
from .execution.plan import StudyPlan, plan_study
from .execution.runner import run_study
from .format import count, listed, number, spread
from .results import Results
from .study import Axis, Point, Study
from .study_file import SETTINGS

__all__ = ["Advice", "Candidate", "advise", "slow_peers"]

# From every step to rarely, each with its usual graph.
_RULES: Final = (
    ("gosgd:p=0.02", "exponential"),
    ("gosgd:p=0.1", "exponential"),
    ("gosgd:p=0.5", "exponential"),
    ("gosgd:p=1", "exponential"),
    ("sgp", "exponential"),
    ("adpsgd", "exponential"),
    ("noloco:h=20", "random-matching"),
    ("diloco:h=20", "complete"),
    ("local-sgd:h=20", "complete"),
    ("allreduce", "complete"),
)
_TOPOLOGIES: Final = ("ring", "torus", "exponential", "complete")
_WIRES: Final = ("float32", "bfloat16", "int8")

_TIME: Final = "time_to_loss_median_s"
_METRICS: Final = (_TIME, "bytes_to_loss_median")

# A peer is slow if its steps, or its uplink, take this many times as long as the typical one's.
_SLOW: Final = 1.5

_FACTORS: Final = ("rule", "topology", "wire")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A way to train: a rule with its parameters, a topology and a wire."""

    rule: str
    topology: str
    wire: str = "float32"
    is_without_slow: bool = False
    """True if the slow peers take no part."""

    def __str__(self) -> str:
        wire = "" if self.wire == "float32" else f" with {self.wire}"
        return f"{self.rule} on {self.topology}{wire}{' (fast peers)' * self.is_without_slow}"

    @property
    def options(self) -> str:
        """Options of ``rumor launch``, ``run``, ``peer`` and ``simulate``."""
        return f"--rule {self.rule} --topology {self.topology} --wire {self.wire}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The candidates, ranked by the time until the median peer's own model has a loss."""

    candidates: Mapping[str, Candidate]
    """Candidates by label."""
    results: Results
    """Results of the study; its failures include candidates that cannot be used."""
    comparison: Comparison

    @property
    def best(self) -> Candidate | None:
        """The first candidate; None if none reached the loss with every seed."""
        ranked = self.comparison.ranked if self.comparison.metric.name == _TIME else ()
        return self.candidates[ranked[0].label] if ranked else None

    @property
    def whys(self) -> dict[str, str]:
        """Why candidates without any result failed, by label."""
        failed = self.results.failures
        trials = self.results.study.trials()
        found = {t.group[0]: failed[str(t)] for t in trials if str(t) in failed}
        return {label: why for label, why in found.items() if label in self.comparison.missing}

    @property
    def words(self) -> tuple[str, ...]:
        """A sentence about the best candidate, and one about the other values of each factor."""
        best = self.best
        if best is None:
            return ()
        # By the factor in which a candidate differs from the best.
        found: dict[str, list[Row]] = {"Rule": [], "Topology": [], "Wire": []}
        for row in self.comparison.rows[1:]:
            other = self.candidates[row.label]
            is_rule = (other.rule, other.is_without_slow) != (best.rule, best.is_without_slow)
            is_topology = other.topology != best.topology
            factor = "Rule" if is_rule else "Topology" if is_topology else "Wire"
            found[factor].append(row)
        figure = spread(self.comparison.rows[0].figures[_TIME], "s")
        return (
            f"First: {best}, a loss of {number(self.results.study.target)} after {figure}.",
            *(
                f"{factor}: {'; '.join(_clauses(rows, self.comparison))}."
                for factor, rows in found.items()
                if rows
            ),
        )


def _clauses(rows: Sequence[Row], comparison: Comparison) -> Iterator[str]:
    """Say how rows compare with the first, those without a difference in one clause."""
    if alike := [row.label for row in rows if row.gap and row.may_be_first]:
        yield f"{listed(alike, at_most=9)}: {Verdict.UNDECIDED}"
    for row in rows:
        if row.label in alike:
            continue
        if row.missing or row.gap is None:
            arrived = comparison.reached(row)
            yield f"{row.label} reaches it with {arrived} of {count(row.n + row.missing, 'seed')}"
            continue
        around = f"{number(row.gap.low, 2)} to {number(row.gap.high, 2)}"
        around = around if math.isfinite(row.gap.low) else row.verdict
        yield f"{row.label} takes {number(row.gap.mean, 2)} times as long ({around})"


def advise(
    fleet: Calibration,
    folder: Path,
    *,
    given: Mapping[str, Any] | None = None,
    seeds: int = 3,
    target: float | None = None,
    jobs: int | None = None,
    compute: Callable[[StudyPlan, str], Results] | None = None,
) -> Advice:
    """Simulate ways to train on some machines, and rank them by the time to a loss: rules with
    their parameters, then other topologies of the best so far, then other wires of the best.

    Args:
        folder: Folder of the study; trials that are there already are not computed again.
        given: Settings of `rumor.sim.simulate` that take precedence over the fleet's. A rule,
            topology or wire among them is not varied, except the parameters of a rule named
            without any.
        target: A loss; default: 95 % of the way from the first to the best final one.
        jobs: Number of processes; default: as many as cores and memory allow.
        compute: Computes a planned round, of the given factor; default: `run_study`.

    Raises:
        ConfigError: An argument is out of range, no candidate can be used, or the task has no loss.
        OSError: The folder cannot be written.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}: it must be 1 or more")
    given = dict(given or {})
    compute = compute or (lambda plan, _: run_study(plan.study, folder, resume=True, plan=plan))
    fleets = [fleet]
    if (slow := slow_peers(fleet)) and not {"workers", "slow", "speeds", "faults"} & given.keys():
        fleets.append(_without(fleet, slow))
    settings = [_settings(each, given) for each in fleets]
    candidates = {str(each): each for each in _first(fleet, given, has_slow=len(fleets) > 1)}
    study = Study(
        name="advise",
        title=f"Ways to train on {count(len(fleet.peers), 'peer')}",
        question="Which rule, topology and wire reach a loss first?",
        settings={},
        axes=(_axis(candidates, settings),),
        seeds=tuple(range(seeds)),
        target=1.0 if target is None else target,
        metrics=_METRICS,
    )
    refused: dict[str, str] = {}
    results = Results(study=study, results=(), failures={})
    for factor, values in (("rule", ()), ("topology", _TOPOLOGIES), ("wire", _WIRES)):
        if values and factor in given:
            continue
        if values:
            best = candidates[compare(results).rows[0].label]
            more = [replace(best, **cast(Any, {factor: value})) for value in values]
            candidates |= {str(each): each for each in more}
        while True:
            left = {label: one for label, one in candidates.items() if label not in refused}
            if not left:
                why = next(iter(refused.values()))
                raise ConfigError(f"no candidate can be used on these peers: {why}")
            usable = replace(study, axes=(_axis(left, settings),))
            plan = plan_study(usable, folder, jobs=jobs)
            if not plan.bad:
                break
            refused |= {name.rpartition(", seed ")[0]: why for name, why in plan.bad.items()}
        results = compute(plan, factor)
        # Also where a target is given, to refuse a task without a loss.
        usual = _target(results)
        if target is None:
            target = usual
            study = replace(study, target=target)
            results = replace(results, study=replace(usable, target=target))
    study = replace(study, axes=(_axis(candidates, settings),))
    whys = {str(one): refused[one.group[0]] for one in study.trials() if one.group[0] in refused}
    results = replace(results, study=study, failures={**results.failures, **whys})
    return Advice(candidates=candidates, results=results, comparison=compare(results))


def slow_peers(fleet: Calibration) -> tuple[int, ...]:
    """Return the peers whose steps or uplinks take much longer than the typical one's.

    >>> from ..calibration import PeerPace
    >>> paces = [PeerPace(id=str(i), step_s=s) for i, s in enumerate((0.1, 0.1, 0.1, 0.5))]
    >>> slow_peers(Calibration(source="a test", peers=tuple(paces)))
    (3,)
    """
    steps_s = [peer.step_s for peer in fleet.peers]
    own = {name: host.bandwidth_mbit for host in fleet.network.hosts for name in host.workers}
    usual = fleet.network.bandwidth_mbit or math.inf
    rates = [own.get(str(index)) or usual for index in range(len(steps_s))]
    typical_s, typical_rate = median_low(steps_s), median_high(rates)
    return tuple(
        index
        for index, (step_s, rate) in enumerate(zip(steps_s, rates, strict=True))
        if step_s > _SLOW * typical_s or rate * _SLOW < typical_rate
    )


def _without(fleet: Calibration, gone: Sequence[int]) -> Calibration:
    """Return the fleet without some peers; workers that hosts name are renumbered."""
    kept = [index for index in range(len(fleet.peers)) if index not in gone]
    numbers = {str(old): str(new) for new, old in enumerate(kept)}
    hosts = [
        replace(host, workers=names)
        for host in fleet.network.hosts
        if (names := tuple(numbers[name] for name in host.workers if name in numbers))
    ]
    network = replace(fleet.network, hosts=tuple(hosts))
    return replace(fleet, peers=tuple(fleet.peers[index] for index in kept), network=network)


def _settings(fleet: Calibration, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that all candidates share on a fleet."""
    found = fleet.simulation_with(given)
    if found.get("total_steps") and "total_steps" not in given:
        # If peers wait for one another, each must take the same number of steps.
        found["steps"] = math.ceil(found.pop("total_steps") / found["workers"])
    # A factor is set by each candidate, and the rest belongs to the measured run alone.
    dropped = {*_FACTORS, *({"p", "eval_every"} - given.keys())}
    return {name: value for name, value in found.items() if name in {*SETTINGS} - dropped}


def _axis(candidates: Mapping[str, Candidate], settings: Sequence[Mapping[str, Any]]) -> Axis:
    points = [
        Point(label, {**settings[c.is_without_slow], **{f: getattr(c, f) for f in _FACTORS}})
        for label, c in candidates.items()
    ]
    return Axis("candidate", tuple(points))


def _first(fleet: Calibration, given: Mapping[str, Any], *, has_slow: bool) -> list[Candidate]:
    """Return the candidates of the first round."""
    rules, rule = [*_RULES], given.get("rule")
    if rule is not None:
        graph = next((t for r, t in rules if _name(r) == _name(rule)), "exponential")
        rules = [each for each in rules if _name(each[0]) == rule] or [(rule, graph)]
    elif "rule" in fleet.settings:
        # The rule in use now, unless it is listed already in another spelling.
        used = SimulationConfig(**fleet.simulation())
        known = {(spec_of(read_rule(spec).make()), topology) for spec, topology in rules}
        if (spec_of(used.rule_spec.make()), used.topology) not in known:
            rules.append((str(used.rule_spec), used.topology))
    wire = given.get("wire", "float32")
    found = [Candidate(rule=r, topology=given.get("topology", t), wire=wire) for r, t in rules]
    alone = [replace(c, is_without_slow=True) for c in found if _name(c.rule) == "allreduce"]
    return found + alone * has_slow


def _name(rule: str) -> str:
    return rule.partition(":")[0]


def _target(results: Results) -> float:
    """Return the default target: nearly the best final loss of any trial."""
    curves = [one.series.get("loss_median", ()) for one in results.results]
    known = [[loss for loss in curve if loss is not None] for curve in curves]
    if not (known := [curve for curve in known if curve]):
        whys = [*results.failures.values(), "the task has no loss to rank by"]
        raise ConfigError(f"no candidate can be ranked: {whys[0]}")
    first, best = median_low(curve[0] for curve in known), min(curve[-1] for curve in known)
    return first - 0.95 * (first - best)
