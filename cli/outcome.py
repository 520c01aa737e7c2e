"""How each peer of a run ended, and where every founder's weight is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..gossip import Account, Audit, audit
from ..gossip.errors import TrainingError
from ..gossip.weight import founders
from ..train.ledger_file import read_ledgers
from ..train.merged import SavedModel, open_model
from .places import Place
from .watch import Former, Sight, State, Tail, read_report

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
    """What the ledger of its last life says, by shard; empty where it never opened one."""
    model: SavedModel | None
    rows: tuple[dict[str, Any], ...]
    """Its metrics, of all lives."""
    former: tuple[Former, ...] = ()
    """How its earlier lives ended."""
    former_accounts: tuple[Account, ...] = ()
    """What the ledgers of those say."""

    @property
    def weight(self) -> int:
        """What it held at its end."""
        return sum(account.weight for account in self.accounts)

    @property
    def weight_founders(self) -> float:
        """The same in founders; with shards, the mean over them."""
        return founders(self.weight) / max(1, len(self.accounts))

    @property
    def end(self) -> Former:
        """How its last life ended."""
        known = {life for former in self.former for life in former.lives}
        lives = frozenset(account.life for account in self.accounts) - known
        return Former(state=self.state, why=self.why, step=self.steps, lives=lives)

    @property
    def in_order(self) -> bool:
        """Whether it ended as a peer should."""
        return self.state in (State.FINISHED, State.LEFT)

    @property
    def is_dead(self) -> bool:
        """Whether its weight is lost to the others: it was killed, failed, or left with some."""
        return not self.in_order or (self.state is State.LEFT and self.weight > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One life of a peer that took weight with it, or ended badly without any."""

    outcome: Outcome
    """Of the peer."""
    life: int
    """Which of its lives, counted from 1."""
    state: State
    """How that one ended."""
    why: str
    step: int
    weight: int
    """What it held, and its escrow that nobody accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """All ledgers of a run side by side."""

    audit: Audit
    deaths: tuple[Death, ...]
    shards: int
    """Into how many pieces the vector is cut: a founder's weight counts once in each."""

    @property
    def weight_total(self) -> int:
        """Weight that is there."""
        return self.audit.held + self.audit.in_flight + self.audit.stranded

    @property
    def weight_expected(self) -> int:
        """Weight that should be there."""
        return self.audit.founded - self.audit.died - self.audit.burned


def balance(outcomes: Sequence[Outcome]) -> Balance:
    """Account for all weight that was founded, from the ledgers alone."""
    accounts = [account for o in outcomes for account in (*o.former_accounts, *o.accounts)]
    dead = [
        (outcome, number, former, former.lives)
        for outcome in outcomes
        for number, former in enumerate((*outcome.former, *_last(outcome)), 1)
    ]
    deaths = tuple(
        Death(
            outcome=outcome,
            life=number,
            state=former.state,
            why=former.why,
            step=former.step,
            weight=audit(accounts, lives).died,
        )
        for outcome, number, former, lives in dead
    )
    shards = max((len(outcome.accounts) for outcome in outcomes), default=1)
    whole = audit(accounts, frozenset().union(*(lives for *_, lives in dead)))
    return Balance(audit=whole, deaths=deaths, shards=max(1, shards))


def _last(outcome: Outcome) -> tuple[Former, ...]:
    """The last life of a peer, where it is a death; none where it ended in order."""
    if not outcome.is_dead:
        return ()
    return (outcome.end,)


def read_outcome(place: Place, sight: Sight) -> Outcome:
    """Read what a peer left.

    Args:
        place: Where it wrote.
        sight: How it was seen to end.

    Raises:
        TrainingError: Its ledger contradicts itself, or its model cannot be read.
    """
    folders = (*place.former, place.folder)
    rows = tuple(row for folder in folders for row in Tail(folder / "metrics.jsonl").rows())
    former, accounts = _accounts(place, sight)
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
        accounts=accounts,
        model=open_model(path) if path.exists() else None,
        rows=rows,
        former=tuple(sight.former),
        former_accounts=former,
    )


def _accounts(place: Place, sight: Sight) -> tuple[tuple[Account, ...], tuple[Account, ...]]:
    """What its ledgers say: those of its former lives, and that of the last one."""
    accounts: tuple[Account, ...] = ()
    try:
        for folder in (*place.former, place.folder):
            accounts += read_ledgers(folder)
    except TrainingError as error:
        raise TrainingError(f"a ledger of {place.id} is of no use: {error}") from error
    over = {life for former in sight.former for life in former.lives}
    count = sum(
        account.life == accounts[-1].life and account.life not in over for account in accounts
    )
    return accounts[: len(accounts) - count], accounts[len(accounts) - count :]


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
