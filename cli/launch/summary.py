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
from ...train.model import travelling, with_own_names
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
from .monitor import LifeEnd, PeerView, State, read_report

__all__ = [
    *("Balance", "Death", "Outcome", "balance", "estimate", "merge_outcomes", "read_outcome"),
    "summarize",
]


FIGURES: Mapping[str, float | None] = {
    **dict.fromkeys(("steps_per_s", "accuracy", "loss")),
    **dict.fromkeys(("messages", "bytes_sent", "pushes", "skipped", "refusals"), 0),
}
"""Figures of each peer, with the values for unknown ones. Accuracy and loss are its last
measurements on held-out data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One peer's end, from its files."""

    index: int
    id: str
    state: State
    why: str
    """The reason for its end, if it did not finish, or not with its own steps."""
    script_error: str
    """How its process failed after training was over; empty if it did not."""
    steps: int
    figures: Mapping[str, Any]
    """Values of `FIGURES`."""
    accounts: tuple[Account, ...]
    """Accounts from the ledger of its last incarnation, by shard; empty if it never opened one."""
    model: SavedModel | None
    rows: tuple[dict[str, Any], ...]
    """Its metrics, of all incarnations."""
    merge: Mapping[str, Any] | None = None
    """How merging with the others ended, as in `rumor.train.MergeResult`; None if never begun."""
    earlier: tuple[LifeEnd, ...] = ()
    """How its earlier incarnations ended, those that this launcher did not see first."""
    earlier_accounts: tuple[Account, ...] = ()
    """Accounts from the ledgers of its earlier incarnations."""

    @property
    def weight(self) -> int:
        """Weight that it held at its end."""
        return sum(account.weight for account in self.accounts)

    @property
    def end(self) -> LifeEnd:
        """The end of its last incarnation."""
        known = {life for end in self.earlier for life in end.lives}
        lives = frozenset(account.life for account in self.accounts) - known
        return LifeEnd(state=self.state, why=self.why, step=self.steps, lives=lives)

    @property
    def in_order(self) -> bool:
        """True if it ended in order."""
        return self.state in (State.FINISHED, State.LEFT)

    @property
    def is_dead(self) -> bool:
        """True if its weight is lost to the others: it was killed, failed, or left with some."""
        return not self.in_order or (self.state is State.LEFT and self.weight > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """An incarnation of a peer that died with weight, or was seen to end badly without any."""

    outcome: Outcome
    """Outcome of the peer."""
    life: int
    """Number of the incarnation, counted from 1."""
    end: LifeEnd
    weight: int
    """Weight that it held, and its escrow that no peer accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """All ledgers of a run in comparison."""

    audit: Audit
    deaths: tuple[Death, ...]
    shards: int
    """Number of pieces of the vector: a founder's weight counts once in each."""

    @property
    def weight_total(self) -> int:
        """Weight that exists."""
        return self.audit.held + self.audit.in_flight + self.audit.stranded

    @property
    def weight_expected(self) -> int:
        """Weight that should exist."""
        return self.audit.founded - self.audit.died - self.audit.burned


def balance(outcomes: Sequence[Outcome]) -> Balance:
    """Account for all weight that was founded, from the ledgers alone."""
    accounts = [account for o in outcomes for account in (*o.earlier_accounts, *o.accounts)]
    deaths = tuple(
        Death(outcome=outcome, life=life, end=end, weight=audit(accounts, end.lives).died)
        for outcome in outcomes
        for life, end in enumerate((*outcome.earlier, *[outcome.end] * outcome.is_dead), 1)
    )
    shards = max((len(outcome.accounts) for outcome in outcomes), default=1)
    whole = audit(accounts, frozenset().union(*(death.end.lives for death in deaths)))
    deaths = tuple(death for death in deaths if death.weight or death.end.state is not None)
    return Balance(audit=whole, deaths=deaths, shards=max(1, shards))


def read_outcome(place: Place, view: PeerView) -> Outcome:
    """Read the files that a peer left.

    Raises:
        TrainingError: Its ledger contradicts itself, or its model cannot be read.
    """
    folders = (*place.earlier, place.folder)
    rows = tuple(row for folder in folders for row in Tail(folder / "metrics.jsonl").rows())
    earlier, accounts = _accounts(place, view)
    seen = {life for end in view.earlier for life in end.lives}
    unseen = dict.fromkeys(each.life for each in earlier if each.life not in seen)
    ends = [LifeEnd(state=None, why="", step=None, lives=frozenset({life})) for life in unseen]
    known = _last_figures(rows, view) | (read_report(place.folder) or {})
    path = place.folder / "model.safetensors"
    return Outcome(
        index=place.index,
        id=place.id,
        state=view.state,
        why=view.why,
        script_error=view.script_error,
        steps=known["steps"],
        figures={name: known.get(name, default) for name, default in FIGURES.items()},
        accounts=accounts,
        model=open_model(path) if path.exists() else None,
        rows=rows,
        merge=known.get("merge"),
        earlier=(*ends, *view.earlier),
        earlier_accounts=earlier,
    )


def _accounts(place: Place, view: PeerView) -> tuple[tuple[Account, ...], tuple[Account, ...]]:
    """Return the accounts of its ledgers: of earlier incarnations, and of the last one."""
    accounts: tuple[Account, ...] = ()
    try:
        for folder in (*place.earlier, place.folder):
            accounts += read_ledgers(folder)
    except TrainingError as error:
        raise TrainingError(f"a ledger of {place.id} is of no use: {error}") from error
    over = {life for end in view.earlier for life in end.lives}
    count = sum(
        account.life == accounts[-1].life and account.life not in over for account in accounts
    )
    return accounts[: len(accounts) - count], accounts[len(accounts) - count :]


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

    Both results are None if no such peer left a model, or if the models belong to several swarms.
    """
    models = [outcome.model for outcome in outcomes if outcome.in_order and outcome.model]
    if len(_swarms(models)) != 1:
        return None, None
    if task is None:
        return merge_models(models), None
    torch.manual_seed(0)
    model = task.build()
    merged = merge_models(models, travelling(model))
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
    """Build the object that ``--json`` prints; values that are not finite or not known are None."""
    weight = balance(outcomes)
    evaluation = evaluation or Evaluation(loss=math.nan, accuracy=None)
    models = [outcome.model for outcome in outcomes if outcome.in_order and outcome.model]
    exchange = dict(described["exchange"])
    # Some rules cut the vector themselves, and a rule may be the script's.
    exchange["shards"] = max(exchange["shards"], weight.shards)
    return {
        **described,
        "exchange": exchange,
        "accuracy": finite(evaluation.accuracy),
        "loss": finite(evaluation.loss),
        "consensus_distance": finite(merged.consensus_distance) if merged else None,
        "weight_units_total": in_units(weight.weight_total),
        "weight_units_expected": in_units(weight.weight_expected),
        "messages": _sum("messages", outcomes),
        "bytes_sent": _sum("bytes_sent", outcomes),
        "wall_s": round(wall_s, 3),
        "steps_per_s": round(_sum("steps_per_s", outcomes), 3),
        "digest": merged.digest if merged else None,
        "swarms": _swarms(models),
        "peers_detail": [_detail(outcome) for outcome in outcomes],
        "dead": [_loss(death) for death in weight.deaths],
        "ledger": {name: in_units(part) for name, part in asdict(weight.audit).items()},
        "faults": list(faults),
        "out": str(out),
    }


def _sum(name: str, outcomes: Sequence[Outcome]) -> Any:
    return sum(outcome.figures[name] or 0 for outcome in outcomes)


def _detail(outcome: Outcome) -> dict[str, Any]:
    return {
        "peer": outcome.index,
        "id": outcome.id,
        "state": str(outcome.state),
        "why": outcome.why or None,
        "script_error": outcome.script_error or None,
        "lives": len(outcome.earlier) + 1,
        "steps": outcome.steps,
        **finite(outcome.figures),
        # In founders; with shards, the mean over them.
        "weight": founders(outcome.weight) / max(1, len(outcome.accounts)),
        "weight_units": in_units(outcome.weight),
        "merge": outcome.merge,
    }


def _loss(death: Death) -> dict[str, Any]:
    shards = max(1, len(death.outcome.accounts))
    return {
        "peer": death.outcome.index,
        "id": death.outcome.id,
        "life": death.life,
        "state": death.end.state,
        "why": death.end.why,
        "step": death.end.step,
        "weight": founders(death.weight) / shards,
        "weight_units": in_units(death.weight),
    }
