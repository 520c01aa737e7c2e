"""A simulation in one flat table of figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..gossip import Audit, PeerId, Rule
from ..gossip.weight import founders, in_units
from ..train.merged import digest
from .config import SimulationConfig
from .digest import digest_of
from .faults import Fault, as_json
from .measure import Curves
from .memory import peak_rss_mib
from .models import Models
from .run import Run, time_to
from .schedule import Ending
from .vectors import VectorRows

__all__ = ["summarize"]

# Virtual time at which the merged model was first measured to be so good.
_ACCURACIES = (0.5, 0.8, 0.9, 0.95, 0.99)

# The part of a run, from its end, that counts as stationary.
_STATIONARY = 0.5


def summarize(
    config: SimulationConfig,
    *,
    values: Models | VectorRows,
    topology: str,
    rule: Rule,
    curves: Curves,
    ending: Ending,
    stopped: Sequence[PeerId],
    faults: Sequence[Fault],
    ids: Sequence[PeerId],
    engine: str,
    engine_why: str,
    wall_s: float,
) -> Run:
    """Draw up what a simulation came to."""
    series, workers = curves.series(), ending.workers
    steps = int(workers["steps"].sum())
    model = values.merged(ending.weight_units) if isinstance(values, Models) else None
    summary: dict[str, Any] = {
        "task": config.task_name,
        "rule": rule.name,
        "rule_spec": str(config.rule_spec),
        "topology": topology,
        "peers": config.workers,
        "workers": config.workers,
        "seed": config.seed,
        "partition": config.partition if isinstance(values, Models) else None,
        "network": config.network if isinstance(config.network, str) else "its own",
        **_changes(config),
        "pace": config.pace,
        "speeds": config.speeds,
        "slow": list(config.slow),
        "step_s": config.step_s,
        "p": getattr(rule, "p", None),
        "emission": getattr(rule, "emission", None),
        "mixing": config.mixing,
        "wire": config.wire,
        "shards": config.shards,
        **_exchange(config),
        "steps": steps,
        "accuracy": _last(series, "accuracy"),
        "loss": _last(series, "loss"),
        "consensus_distance": _last(series, "consensus_distance"),
        **_weights(ending.audit, config.shards),
        **_of_faults(config, faults, ids, ending, series),
        **_traffic(series),
        "idle": _idle(series),
        "virtual_time_s": _last(series, "time_s"),
        "time_to": {str(goal): time_to(series, goal) for goal in _ACCURACIES}
        if "accuracy" in series
        else None,
        "wall_s": wall_s,
        "steps_per_s": steps / wall_s if wall_s else 0.0,
        "engine": engine,
        "engine_why": engine_why,
        "sync_points": len(series["time_s"]),
        "stopped": list(stopped),
        "n_params": values.rows.n_params if isinstance(values, Models) else values.n_params,
        "peak_rss_mib": peak_rss_mib(),
        "digest": digest_of(values, series, workers),
        "model_digest": None if model is None else digest(model),
    }
    if "disagreement" in series:
        summary["disagreement"] = _last(series, "disagreement")
        is_noisy = isinstance(values, VectorRows) and values.task.noise
        summary["disagreement_stationary"] = (
            _stationary(series["disagreement"]) if is_noisy else None
        )
    return Run(summary=summary, series=series, workers=workers, model=model)


def _changes(config: SimulationConfig) -> dict[str, Any]:
    names = ("latency_s", "bandwidth_mbit", "loss", "duplicates")
    given = {f"network_{name}": getattr(config, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _of_faults(
    config: SimulationConfig,
    faults: Sequence[Fault],
    ids: Sequence[PeerId],
    ending: Ending,
    series: dict[str, Any],
) -> dict[str, Any]:
    """What went wrong, and what became of it, where anything was to."""
    found: dict[str, Any] = {}
    if config.total_steps is not None:
        found["total_steps"] = config.total_steps
    after = ending.aftermath
    if after is None:
        return found
    end_s = float(series["time_s"][-1])
    return found | {
        "timing": config.timing,
        "faults": as_json(faults),
        "accuracy_of_groups": _last_of_groups(series),
        "faults_after_end": sum(fault.at_s > end_s for fault in faults),
        **after.figures(),
        "stranded": [ids[worker] for worker in after.stranded],
        "members": int(series["members"][-1]),
        "weight_units_stranded": in_units(ending.audit.stranded),
        "weight_units_died": in_units(ending.audit.died),
    }


def _last_of_groups(series: dict[str, Any]) -> list[float] | None:
    """Accuracy of each group's merged model, as it was measured last while one was cut off."""
    values = series.get("accuracy_of_groups")
    if values is None:
        return None
    found: list[float] = values[np.isfinite(values).any(axis=1)][-1].tolist()
    return found


def _exchange(config: SimulationConfig) -> dict[str, Any]:
    """How shares were exchanged, as far as that was asked for."""
    usual = SimulationConfig()
    names = ("shards_per_push", "shard_order", "exact", "push_mbit")
    given = {name: getattr(config, name) for name in names}
    return {name: value for name, value in given.items() if value != getattr(usual, name)}


def _weights(audit: Audit, shards: int) -> dict[str, Any]:
    total = audit.held + audit.in_flight + audit.stranded + audit.burned + audit.died
    return {
        # A founder brings one of each shard.
        "weight_total": founders(total) / shards,
        "weight_expected": founders(audit.founded) / shards,
        "weight_units_total": in_units(total),
        "weight_units_expected": in_units(audit.founded),
        "weight_units_in_flight": in_units(audit.in_flight),
        "weight_units_burned": in_units(audit.burned),
    }


def _traffic(series: dict[str, Any]) -> dict[str, Any]:
    counts = ("messages", "bytes_sent", "pushes", "skipped", "mixed")
    found: dict[str, Any] = {name: int(series[name][-1]) for name in counts}
    mixed = np.diff(series["mixed"], prepend=0.0)
    behind = np.nansum(series["staleness_steps"] * mixed)
    found["staleness_steps"] = behind / found["mixed"] if found["mixed"] else None
    return found


def _idle(series: dict[str, Any]) -> float:
    """Part of all workers' time that they have waited."""
    lasted_s = np.diff(series["time_s"], prepend=0.0)
    total_s = float(lasted_s.sum())
    return float((series["idle"] * lasted_s).sum()) / total_s if total_s else 0.0


def _stationary(disagreement: Any) -> float:
    """Mean over the later half of the measurements."""
    start = int(len(disagreement) * (1 - _STATIONARY))
    return float(disagreement[start:].mean())


def _last(series: dict[str, Any], name: str) -> float | None:
    return float(series[name][-1]) if name in series else None
