"""How each peer of a run ended, and where every founder's unit of weight is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..gossip import Account, Audit, audit
from ..gossip.errors import TrainingError
from ..gossip.weight import founders
from ..train.ledger_file import read_ledger
from ..train.merged import SavedModel, open_model
from .plan import Place
from .watch import Sight, State, Tail, read_report

__all__ = ["Balance", "Death", "Outcome", "balance", "read_outcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One peer's end, from what it left on disk."""

    index: int
    id: str
    state: State
    why: str
    """What ended it, where it did not finish."""
    steps: int
    steps_per_s: float | None
    accuracy: float | None
    loss: float | None
    """On held-out data, like the accuracy; the last ones that it measured."""
    messages: int
    bytes_sent: int
    pushes: int
    skipped: int
    refusals: int
    accounts: tuple[Account, ...]
    """What its ledger says, by shard; empty where it never opened one."""
    model: SavedModel | None
    rows: tuple[dict[str, Any], ...]
    """Its metrics."""

    @property
    def weight_units(self) -> int:
        """Units it held at its end."""
        return sum(account.weight for account in self.accounts)

    @property
    def weight(self) -> float:
        """The same in founders; with shards, the mean over them."""
        return founders(self.weight_units) / max(1, len(self.accounts))

    @property
    def in_order(self) -> bool:
        """Whether it ended as a peer should."""
        return self.state in (State.FINISHED, State.LEFT)

    @property
    def is_dead(self) -> bool:
        """Whether its weight is lost to the others: it was killed, failed, or left with some."""
        return not self.in_order or (self.state is State.LEFT and self.weight_units > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One peer that took weight with it, or ended badly without any."""

    outcome: Outcome
    units: int
    """Its weight, and its escrow that nobody accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """All ledgers of a run side by side."""

    audit: Audit
    deaths: tuple[Death, ...]
    shards: int
    """Into how many pieces the vector is cut: a founder's weight counts once in each."""

    @property
    def units_total(self) -> int:
        """Units that are there."""
        return self.audit.held + self.audit.in_flight + self.audit.stranded

    @property
    def units_expected(self) -> int:
        """Units that should be there."""
        return self.audit.founded - self.audit.died - self.audit.burned


def balance(outcomes: Sequence[Outcome]) -> Balance:
    """Account for every unit that was founded, from the ledgers alone."""
    accounts = [account for outcome in outcomes for account in outcome.accounts]
    dead = [outcome for outcome in outcomes if outcome.is_dead]
    lives = {o.id: {o.accounts[0].life} for o in dead if o.accounts}
    deaths = tuple(
        Death(outcome=outcome, units=audit(accounts, lives.get(outcome.id, ())).died)
        for outcome in dead
    )
    shards = max((len(outcome.accounts) for outcome in outcomes), default=1)
    whole = audit(accounts, set().union(*lives.values()))
    return Balance(audit=whole, deaths=deaths, shards=max(1, shards))


def read_outcome(place: Place, sight: Sight) -> Outcome:
    """Read what a peer left.

    Args:
        place: Where it wrote.
        sight: How it was seen to end.

    Raises:
        TrainingError: Its ledger contradicts itself, or its model cannot be read.
    """
    rows = tuple(Tail(place.folder / "metrics.jsonl").rows())
    figures = _last_figures(rows, sight) | (read_report(place.folder) or {})
    path = place.folder / "model.safetensors"
    return Outcome(
        index=place.index,
        id=place.id,
        state=sight.state,
        why=sight.why,
        steps=figures["steps"],
        steps_per_s=figures.get("steps_per_s"),
        accuracy=figures.get("accuracy"),
        loss=figures.get("loss"),
        messages=figures.get("messages", 0),
        bytes_sent=figures.get("bytes_sent", 0),
        pushes=figures.get("pushes", 0),
        skipped=figures.get("skipped", 0),
        refusals=figures.get("refusals", 0),
        accounts=_accounts(place),
        model=open_model(path) if path.exists() else None,
        rows=rows,
    )


def _accounts(place: Place) -> tuple[Account, ...]:
    path = place.folder / "ledger.jsonl"
    # A peer that is killed early may have made the file and not written its first line.
    if not Tail(path).rows():
        return ()
    try:
        return read_ledger(path)
    except TrainingError as error:
        raise TrainingError(f"the ledger of {place.id} is of no use: {error}") from error


def _last_figures(rows: Sequence[dict[str, Any]], sight: Sight) -> dict[str, Any]:
    """What a peer without a report is known to have reached, named as a report names it."""
    last = rows[-1] if rows else {}
    time_s = last.get("time_s")
    return {
        "steps": sight.step,
        "steps_per_s": sight.step / time_s if time_s else None,
        "accuracy": sight.accuracy,
        "loss": sight.test_loss,
        **{name: last.get(name, 0) for name in ("bytes_sent", "pushes", "skipped", "refusals")},
    }
