"""A run's result: the merged model, and the figures that ``summary.json`` holds."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..gossip.weight import founders, in_units
from ..train.merged import (
    consensus_distance,
    digest,
    merge,
    merging_weights,
    save_model,
    travelling,
)
from ..train.tasks import Evaluation, Task
from .outcome import Balance, Death, Outcome
from .plan import LaunchConfig
from .watch import Former

__all__ = ["Merged", "merge_outcomes", "summarize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The model that came out of a run."""

    state: dict[str, Tensor]
    weights: dict[str, int]
    """What each peer counted, by id; a unit each where nobody held any."""
    by_weight: bool
    """Whether anybody held weight; if not, all counted alike."""
    evaluation: Evaluation
    consensus_distance: float
    digest: str

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            OSError: It cannot be written; what was there still is.
        """
        save_model(path, self.state, _header(self.weights, self.digest))


def merge_outcomes(outcomes: Sequence[Outcome], task: Task) -> Merged | None:
    """Merge the models of all peers that ended in order, and measure the result.

    Args:
        outcomes: Of all peers.
        task: What they trained.

    Returns:
        What came out; None where no peer that ended in order left a model.

    Raises:
        ConfigError: The models differ.
    """
    models = [outcome.model for outcome in outcomes if outcome.in_order and outcome.model]
    if not models:
        return None
    weights = merging_weights(models)
    chosen = [model for model in models if model.id in weights]
    state = merge(chosen)
    torch.manual_seed(0)
    model = task.model()
    names = travelling(model)
    model.load_state_dict(state)
    return Merged(
        state=state,
        weights=weights,
        by_weight=any(model.weight > 0 for model in models),
        evaluation=task.evaluate(model),
        consensus_distance=consensus_distance(chosen, names),
        digest=digest(state),
    )


def summarize(
    config: LaunchConfig,
    steps: int | None,
    out: Path,
    wall_s: float,
    outcomes: Sequence[Outcome],
    balance: Balance,
    merged: Merged | None,
    faults: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Build the object that ``--json`` prints.

    Args:
        config: What was asked for.
        steps: Of each peer; None where only all together have a number of them.
        out: The run's folder.
        wall_s: From the first process's start to the last one's end, seconds.
        outcomes: Of all peers.
        balance: Where the weight is.
        merged: The merged model, where there is one.
        faults: What was done to peers and network, and when.

    Returns:
        JSON values only: what is not finite or not known is None.
    """
    rule = config.rule_spec.make()
    evaluation = merged.evaluation if merged else Evaluation(loss=math.nan, accuracy=None)
    return {
        "task": config.task,
        "rule": rule.name,
        "rule_spec": str(config.rule_spec),
        "topology": config.topology,
        "peers": config.peers,
        "seed": config.seed,
        "steps": steps,
        "total_steps": config.total_steps,
        "lr_schedule": config.lr_schedule,
        "p": getattr(rule, "p", None),
        "emission": getattr(rule, "emission", config.emission),
        "exchange": config.exchange.as_json(),
        "partition": config.partition,
        "accuracy": _finite(evaluation.accuracy),
        "loss": _finite(evaluation.loss),
        "consensus_distance": _finite(merged.consensus_distance) if merged else None,
        "weight_total": founders(balance.weight_total) / balance.shards,
        "weight_expected": founders(balance.weight_expected) / balance.shards,
        "weight_units_total": in_units(balance.weight_total),
        "weight_units_expected": in_units(balance.weight_expected),
        "messages": sum(outcome.messages for outcome in outcomes),
        "bytes_sent": sum(outcome.bytes_sent for outcome in outcomes),
        "wall_s": round(wall_s, 3),
        "steps_per_s": round(sum(outcome.steps_per_s or 0 for outcome in outcomes), 3),
        "digest": merged.digest if merged else None,
        "merged_by": _merged_by(merged),
        "peers_detail": [_detail(outcome) for outcome in outcomes],
        "dead": [_loss(death) for death in balance.deaths],
        "ledger": {name: in_units(part) for name, part in asdict(balance.audit).items()},
        "faults": list(faults),
        "out": str(out),
    }


def _detail(outcome: Outcome) -> dict[str, Any]:
    return {
        "peer": outcome.index,
        "id": outcome.id,
        "state": str(outcome.state),
        "why": outcome.why or None,
        "lives": len(outcome.former) + 1,
        "ends": [_end(former) for former in (*outcome.former, outcome.end)],
        "steps": outcome.steps,
        "steps_per_s": _finite(outcome.steps_per_s),
        "accuracy": _finite(outcome.accuracy),
        "loss": _finite(outcome.loss),
        "weight": outcome.weight_founders,
        "weight_units": in_units(outcome.weight),
        "messages": outcome.messages,
        "bytes_sent": outcome.bytes_sent,
        "pushes": outcome.pushes,
        "skipped": outcome.skipped,
        "refusals": outcome.refusals,
    }


def _end(former: Former) -> dict[str, Any]:
    """How a life ended, and which it was: what goes on with the run would not see it any more."""
    return {
        "state": str(former.state),
        "why": former.why or None,
        "step": former.step,
        "incarnations": sorted(number for _, number in former.lives),
    }


def _loss(death: Death) -> dict[str, Any]:
    shards = max(1, len(death.outcome.accounts))
    return {
        "peer": death.outcome.index,
        "id": death.outcome.id,
        "life": death.life,
        "state": str(death.state),
        "why": death.why,
        "step": death.step,
        "weight": founders(death.weight) / shards,
        "weight_units": in_units(death.weight),
    }


def _merged_by(merged: Merged | None) -> str | None:
    if merged is None:
        return None
    return "weight" if merged.by_weight else "equally"


def _header(weights: dict[str, int], name: str) -> dict[str, str]:
    listed = ",".join(f"{peer}:{in_units(held)}" for peer, held in weights.items())
    return {"merged_from": listed, "digest": name}


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value
