"""The end of each peer of a run, the audit of the weight, and the results of the run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...gossip import Audit, audit
from ...gossip.effects.ledger import Account
from ...gossip.errors import TrainingError
from ...gossip.weight import founders, in_units
from ...train.model import with_own_names
from ...train.storage.jsonl import Tail, finite
from ...train.storage.ledger_file import read_ledgers
from ...train.storage.merge import (
    Merged,
    SavedModel,
    merge_models,
    merging_weights,
    open_model,
    swarms_of,
)
from ...train.tasks.registry import Evaluation, Task
from .config import Place
from .monitor import Life, LifeEnd, PeerView, State, read_report

__all__ = [
    *("Outcome", "balance", "estimate", "merge_outcomes", "read_outcome", "summarize"),
]


FIGURES: Mapping[str, float | None] = {
    **dict.fromkeys(("steps_per_s", "accuracy", "loss")),
    **dict.fromkeys(("steps", "messages", "bytes_sent", "pushes", "skipped", "refusals"), 0),
}
"""Figures of each peer, with the values for unknown ones. Accuracy and loss are its last
measurements on held-out data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One peer's end: what the launcher saw, and what its files say."""

    place: Place
    view: PeerView
    figures: Mapping[str, Any]
    """Values of `FIGURES`."""
    accounts: tuple[Account, ...]
    """Accounts from the ledgers of all of its incarnations, in order, by shard."""
    model: SavedModel | None
    rows: tuple[dict[str, Any], ...]
    """Its metrics, of all incarnations."""
    merge: Mapping[str, Any] | None = None
    """How merging with the others ended, as in `rumor.train.MergeResult`; None if never begun."""

    @property
    def last(self) -> tuple[Account, ...]:
        """Accounts of its last incarnation; empty if that never opened a ledger."""
        over = {life for end in self.view.earlier for life in end.lives}
        last = {account.life for account in self.accounts[-1:]} - over
        return tuple(account for account in self.accounts if account.life in last)

    @property
    def weight(self) -> int:
        """Weight that it held at its end."""
        return sum(account.weight for account in self.last)

    @property
    def ends(self) -> list[LifeEnd]:
        """The ends of its incarnations; those that this launcher did not see come first."""
        view, lives = self.view, frozenset(account.life for account in self.last)
        seen = lives.union(*(end.lives for end in view.earlier))
        unseen = dict.fromkeys(each.life for each in self.accounts if each.life not in seen)
        ends = [LifeEnd(state=None, why="", step=None, lives=frozenset({life})) for life in unseen]
        steps = self.figures["steps"]
        last = LifeEnd(state=view.state, why=view.why, step=steps, lives=lives)
        return [*ends, *view.earlier, last]

    @property
    def in_order(self) -> bool:
        """True if it ended in order."""
        return self.view.state in (State.FINISHED, State.LEFT)

    @property
    def is_dead(self) -> bool:
        """True if its weight is lost to the others: it was killed, failed, or left with some."""
        return not self.in_order or (self.view.state is State.LEFT and self.weight > 0)


def balance(outcomes: Sequence[Outcome]) -> tuple[Audit, list[dict[str, Any]]]:
    """Account for all weight that was founded, from the ledgers alone.

    The second value describes each incarnation that died with weight, or was seen to end badly.
    """
    accounts = [account for outcome in outcomes for account in outcome.accounts]
    lives: set[Life] = set()
    deaths = []
    for outcome in outcomes:
        for number, end in enumerate(outcome.ends if outcome.is_dead else outcome.ends[:-1], 1):
            lives |= end.lives
            # Its own, and its escrow that no peer accepted.
            weight = audit(accounts, end.lives).died
            if weight or end.state is not None:
                deaths.append(
                    {
                        "peer": outcome.place.index,
                        "id": outcome.place.id,
                        "life": number,
                        "state": end.state,
                        "why": end.why,
                        "step": end.step,
                        "weight": founders(weight) / max(1, len(outcome.last)),
                        "weight_units": in_units(weight),
                    }
                )
    return audit(accounts, lives), deaths


def read_outcome(place: Place, view: PeerView) -> Outcome:
    """Read the files that a peer left.

    Raises:
        TrainingError: Its ledger contradicts itself, or its model cannot be read.
    """
    folders = (*place.earlier, place.folder)
    rows = tuple(row for folder in folders for row in Tail(folder / "metrics.jsonl").rows())
    try:
        accounts = tuple(account for folder in folders for account in read_ledgers(folder))
    except TrainingError as error:
        raise TrainingError(f"a ledger of {place.id} is of no use: {error}") from error
    known = _last_figures(rows, view) | (read_report(place.folder) or {})
    path = place.folder / "model.safetensors"
    return Outcome(
        place=place,
        view=view,
        figures={name: known.get(name, default) for name, default in FIGURES.items()},
        accounts=accounts,
        model=open_model(path) if path.exists() else None,
        rows=rows,
        merge=known.get("merge"),
    )


def _last_figures(rows: Sequence[dict[str, Any]], view: PeerView) -> dict[str, Any]:
    """Return the last known figures of a peer without a report, named as in a report."""
    last = rows[-1] if rows else {}
    time_s = last.get("time_s")
    return {
        "steps": view.step,
        "steps_per_s": view.step / time_s if time_s else None,
        "accuracy": view.accuracy,
        "loss": view.test_loss,
        **{name: last.get(name, 0) for name in ("bytes_sent", "pushes", "skipped", "refusals")},
    }


Rows = Sequence[Mapping[str, Any]]


def estimate(peers: Sequence[Rows]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate the consensus distance over a run, from each peer's rows of metrics.

    Returns:
        When the peer with most sketches made them, seconds since the Unix epoch, and the estimates
        there, dimensionless: both float64, axes ``(instant,)``; empty if fewer than two peers
        sketched.
    """
    # Sketches are linear and nearly keep distances, so that sqrt(mean_i |s_i - mean|^2) / |mean| of
    # the sketches estimates the same of the models. Peers sketch at their own times: for each
    # instant, the nearest in time is taken, and a peer counts from its first sketch to its last.
    sketched = [[row for row in rows if row.get("sketch")] for rows in peers]
    sketched = [rows for rows in sketched if rows]
    if len(sketched) < 2:
        return np.empty(0), np.empty(0)
    times = [np.array([row["unix_s"] for row in rows]) for rows in sketched]
    sketches = [np.array([row["sketch"] for row in rows], np.float64) for rows in sketched]
    longest = max(range(len(sketched)), key=lambda index: len(sketched[index]))
    between_s = np.diff(times[longest])
    slack_s = float(np.median(between_s)) if len(between_s) else 0.0
    instants, distances = [], []
    for now in times[longest]:
        present = [
            own[np.abs(at - now).argmin()]
            for at, own in zip(times, sketches, strict=True)
            if at[0] - slack_s <= now <= at[-1] + slack_s
        ]
        if len(present) >= 2:
            instants.append(now)
            mean = np.mean(present, axis=0)
            spread = np.sqrt(np.square(present - mean).sum(axis=1).mean())
            distances.append(float(spread / (np.linalg.norm(mean) or 1.0)))
    return np.array(instants), np.array(distances)


def merge_outcomes(
    outcomes: Sequence[Outcome], task: Task | None
) -> tuple[Merged | None, Evaluation | None]:
    """Merge the models of all peers that ended in order, and evaluate the result, if possible.

    Returns ``(None, None)`` if these peers left no model, or models of several swarms.
    """
    models = [outcome.model for outcome in outcomes if outcome.in_order and outcome.model]
    if len(_swarms(models)) != 1:
        return None, None
    merged = merge_models(models)
    if task is None:
        return merged, None
    torch.manual_seed(0)
    model = task.build()
    model.load_state_dict(with_own_names(model, merged.state))
    return merged, task.evaluate(model)


def _swarms(models: Sequence[SavedModel]) -> list[list[str]]:
    """Return ids of the peers of each swarm in which the models that count were trained."""
    weights = merging_weights(models) if models else {}
    swarms = swarms_of([model for model in models if model.id in weights])
    return [[model.id for model in swarm] for swarm in swarms]


def summarize(
    described: Mapping[str, Any],
    out: Path,
    wall_s: float,
    outcomes: Sequence[Outcome],
    merged: Merged | None,
    evaluation: Evaluation | None = None,
    faults: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Build the object that ``--json`` prints, in which non-finite and unknown values are None."""
    whole, deaths = balance(outcomes)
    evaluation = evaluation or Evaluation(loss=math.nan, accuracy=None)
    models = [outcome.model for outcome in outcomes if outcome.in_order and outcome.model]
    exchange = dict(described["exchange"])
    # Some rules cut the vector themselves, and a rule may be the script's.
    exchange["shards"] = max(exchange["shards"], *(len(outcome.last) for outcome in outcomes))
    return {
        **described,
        "exchange": exchange,
        "accuracy": finite(evaluation.accuracy),
        "loss": finite(evaluation.loss),
        "consensus_distance": finite(merged.consensus_distance) if merged else None,
        "weight_units_total": in_units(whole.held + whole.in_flight + whole.stranded),
        "weight_units_expected": in_units(whole.founded - whole.died - whole.burned),
        "messages": _sum("messages", outcomes),
        "bytes_sent": _sum("bytes_sent", outcomes),
        "wall_s": round(wall_s, 3),
        "steps_per_s": round(_sum("steps_per_s", outcomes), 3),
        "digest": merged.digest if merged else None,
        "swarms": _swarms(models),
        "peers_detail": [_detail(outcome) for outcome in outcomes],
        "dead": deaths,
        "ledger": {name: in_units(part) for name, part in asdict(whole).items()},
        "faults": list(faults),
        "out": str(out),
    }


def _sum(name: str, outcomes: Sequence[Outcome]) -> Any:
    return sum(outcome.figures[name] or 0 for outcome in outcomes)


def _detail(outcome: Outcome) -> dict[str, Any]:
    view = outcome.view
    return {
        "peer": outcome.place.index,
        "id": outcome.place.id,
        "state": str(view.state),
        "why": view.why or None,
        "script_error": view.script_error or None,
        "lives": len(outcome.ends),
        **finite(outcome.figures),
        # In founders; with shards, the mean over them.
        "weight": founders(outcome.weight) / max(1, len(outcome.last)),
        "weight_units": in_units(outcome.weight),
        "merge": outcome.merge,
    }
