"""The account of every unit of weight, from made-up ledgers."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rumor.cli.launch.config import Place
from rumor.cli.launch.monitor import LifeEnd, PeerView, State
from rumor.cli.launch.summary import FIGURES, Outcome, balance, estimate, read_outcome, summarize
from rumor.gossip.effects.ledger import Account, Entry, Kind
from rumor.gossip.weight import ONE, UNIT, in_units


def account(id: str, *entries: Entry, life: int = 1) -> Account:
    """Return the account of a founder; only its first incarnation founds weight."""
    made = Account(id, life)
    founded = (Entry(Kind.FOUNDED, ONE),) if life == 1 else ()
    for entry in (*founded, *entries):
        made.apply(entry)
    return made


def outcome(index: int, state: State, *accounts: Account) -> Outcome:
    id = f"peer-{index}"
    return Outcome(
        place=Place(index=index, id=id, folder=Path(id), command=()),
        view=PeerView(id, None, state),
        figures={**FIGURES, "steps": 10},
        accounts=accounts,
        model=None,
        rows=(),
    )


def peer(index: int, state: State, *entries: Entry) -> Outcome:
    return outcome(index, state, account(f"peer-{index}", *entries))


def entry(kind: Kind, weight: int, other: str, number: int = 1) -> Entry:
    return Entry(kind, weight, other, number, 1)


pushed, accepted, settled = (partial(entry, k) for k in (Kind.PUSHED, Kind.ACCEPTED, Kind.SETTLED))


HALF, QUARTER = ONE // 2, ONE // 4
DONE, KILLED, LEFT, FAILED = State.FINISHED, State.KILLED, State.LEFT, State.FAILED
A, B = "peer-0", "peer-1"
SEVEN = Entry(Kind.FOUNDED, 7 * UNIT)


def with_former(last: Outcome, *earlier: Account) -> Outcome:
    """A peer with earlier, killed incarnations, one for each account."""
    killed: Any = {"state": State.KILLED, "why": "SIGKILL", "step": 5}
    ends = [LifeEnd(**killed, lives=frozenset({each.life})) for each in earlier]
    view = replace(last.view, earlier=ends)
    return replace(last, view=view, accounts=(*earlier, *last.accounts))


CASES: dict[str, tuple[list[Outcome], int, list[tuple[str, int, int, int]], dict[str, int]]] = {
    "no peer died": (
        [
            peer(0, DONE, pushed(HALF, B), settled(HALF, B)),
            peer(1, DONE, accepted(HALF, A)),
        ],
        2 * ONE,
        [],
        {},
    ),
    "a killed peer takes its weight with it": (
        [peer(0, DONE), peer(1, KILLED)],
        ONE,
        [(B, 1, ONE, 10)],
        {},
    ),
    "a failed peer takes its weight with it": (
        [peer(0, DONE), peer(1, FAILED)],
        ONE,
        [(B, 1, ONE, 10)],
        {},
    ),
    "a peer that left without pushing takes its weight with it": (
        [peer(0, DONE), peer(1, LEFT)],
        ONE,
        [(B, 1, ONE, 10)],
        {},
    ),
    "a share that no peer accepted dies with its sender": (
        [peer(0, DONE), peer(1, KILLED, pushed(HALF, A))],
        ONE,
        [(B, 1, ONE, 10)],
        {},
    ),
    "an accepted share outlives its sender": (
        [peer(0, DONE, accepted(HALF, B)), peer(1, KILLED, pushed(HALF, A))],
        ONE + HALF,
        [(B, 1, HALF, 10)],
        {},
    ),
    "escrow for a dead peer is stranded and still counts": (
        [
            peer(0, DONE, pushed(QUARTER, B), entry(Kind.STRANDED, QUARTER, B)),
            peer(1, KILLED),
        ],
        ONE,
        [(B, 1, ONE, 10)],
        {"stranded": QUARTER},
    ),
    "deaths are counted separately": (
        [
            peer(0, KILLED, pushed(HALF, B)),
            peer(1, KILLED, accepted(HALF, A)),
            peer(2, DONE),
        ],
        ONE,
        [(A, 1, HALF, 10), (B, 1, ONE + HALF, 10)],
        {"died": 2 * ONE},
    ),
    "weight that leavers handed over or burned did not die": (
        [
            peer(0, LEFT, pushed(ONE, B), settled(ONE, B)),
            peer(1, LEFT, accepted(ONE, A), Entry(Kind.BURNED, 2 * ONE)),
        ],
        0,
        [],
        {"burned": 2 * ONE},
    ),
    "a peer without a ledger takes no weight with it": (
        [peer(0, DONE), outcome(1, FAILED)],
        ONE,
        [(B, 1, 0, 10)],
        {},
    ),
    "each killed incarnation is a separate death": (
        [
            peer(0, DONE, accepted(HALF, B), pushed(QUARTER, B, 2), settled(QUARTER, B, 2)),
            with_former(
                outcome(1, DONE, account(B, life=3)),
                account(B, pushed(HALF, A)),
                account(B, accepted(QUARTER, A), life=2),
            ),
        ],
        2 * ONE - HALF - QUARTER,
        [(B, 1, HALF, 5), (B, 2, QUARTER, 5)],
        {"died": HALF + QUARTER},
    ),
    "the death of the last incarnation adds to earlier deaths": (
        [with_former(outcome(1, KILLED, account(B, SEVEN, life=2)), account(B))],
        0,
        [(B, 1, ONE, 5), (B, 2, 7 * UNIT, 10)],
        {},
    ),
    "a last incarnation without a ledger takes no weight with it": (
        [with_former(outcome(1, FAILED), account(B))],
        0,
        [(B, 1, ONE, 5), (B, 2, 0, 10)],
        {},
    ),
    "unaccepted escrow for an earlier incarnation is burned": (
        [
            peer(0, DONE, pushed(HALF, B), entry(Kind.WRITTEN_OFF, HALF, B)),
            with_former(outcome(1, DONE, account(B, life=2)), account(B, accepted(QUARTER, A))),
        ],
        HALF,
        [(B, 1, ONE + QUARTER, 5)],
        {"burned": QUARTER, "died": ONE + QUARTER},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_all_founded_weight_is_held_or_died(case: str) -> None:
    outcomes, total, deaths, parts = CASES[case]
    whole, found = balance(outcomes)
    assert whole.held + whole.in_flight + whole.stranded == total and whole.balanced
    died = [(death["id"], death["life"], death["weight_units"], death["step"]) for death in found]
    assert died == [(id, life, in_units(weight), step) for id, life, weight, step in deaths]
    assert {name: getattr(whole, name) for name in parts} == parts


def test_weight_of_unknown_origin_is_detected() -> None:
    peers = [peer(0, DONE, accepted(5 * UNIT, "peer-9"))]
    exchange = {"exchange": {"wire": "float32", "shards": 1}}
    summary = summarize(exchange, Path("run"), 1.0, peers, None)
    totals = summary["weight_units_total"], summary["weight_units_expected"]
    assert totals == (in_units(ONE + 5 * UNIT), in_units(ONE))


def test_accounts_of_the_last_and_earlier_incarnations_are_separate(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, name, life in (
        (old, "ledger.jsonl", 1),
        (old, "ledger.2.jsonl", 2),
        (new, "ledger.jsonl", 3),
    ):
        folder.mkdir(exist_ok=True)
        opened = {"kind": "opened", "id": "peer-1", "incarnation": life}
        rows = [opened, {"kind": "founded", "units": 10 * life}]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    for folder, step in ((old, 10), (new, 20)):
        (folder / "metrics.jsonl").write_text(json.dumps({"step": step}) + "\n")
    place = Place(index=1, id="peer-1", folder=new, command=(), earlier=(old,))
    found = read_outcome(place, PeerView("peer-1", 20, State.KILLED, 20, script_error="why"))
    assert [account.weight for account in found.last] == [30 * UNIT]
    assert [account.weight for account in found.accounts] == [10 * UNIT, 20 * UNIT, 30 * UNIT]
    lives = [{("peer-1", life)} for life in (1, 2, 3)]
    assert [end.lives for end in found.ends] == lives
    assert found.weight == 30 * UNIT
    assert [row["step"] for row in found.rows] == [10, 20]
    gone = LifeEnd(state=State.KILLED, why="SIGKILL", step=20, lives=frozenset({("peer-1", 3)}))
    found = read_outcome(place, PeerView("peer-1", 20, State.FAILED, earlier=[gone]))
    assert found.last == () and len(found.accounts) == 3
    assert [end.lives for end in found.ends] == [*lives, set()]


def rows(sketches: dict[float, list[float]], steps_per_s: float = 10) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for unix_s, sketch in sketches.items():
        made.append({"step": unix_s * steps_per_s, "unix_s": unix_s, "sketch": sketch})
        made.append({"step": unix_s * steps_per_s + 1, "unix_s": unix_s, "sketch": None})
    return made


def test_the_consensus_distance_is_the_spread_over_the_norm_of_the_mean() -> None:
    instants, distances = estimate([rows({1: [3.0, 1.0]}), rows({1: [3.0, -1.0]})])
    assert instants.tolist() == [1] and distances == pytest.approx([1 / 3])
    one, two = rows({t: [1.0] for t in (0.0, 1.0, 2.0)}), rows({0.1: [1.0], 1.1: [3.0]})
    instants, distances = estimate([one, two])
    assert instants.tolist() == [0, 1, 2] and distances == pytest.approx([0, 0.5, 0.5])
    _, distances = estimate([rows({1: [1.0]}), rows({1: [-1.0]})])
    assert np.isfinite(distances).all()


def test_a_dead_peer_counts_until_its_death() -> None:
    one = rows({t: [1.0] for t in range(10)})
    two = rows({t: [1.0] for t in range(10)})
    dead = rows({t: [4.0] for t in range(4)})
    instants, distances = estimate([one, two, dead])
    assert len(instants) == 10
    assert (distances[:4] > 0).all() and (distances[6:] == 0).all()


def test_a_lone_peer_has_no_consensus_distance() -> None:
    no_rows: list[list[dict[str, object]]] = [[], []]
    for peers in (no_rows[:0], no_rows, [rows({1: [1.0]})], [rows({1: [1.0]}), []]):
        instants, distances = estimate(peers)
        assert len(instants) == len(distances) == 0


@pytest.mark.parametrize(
    ("configured", "cut", "expected"), [(1, 10, 10), (4, 4, 4), (4, 0, 4), (1, 1, 1)]
)
def test_a_summary_has_the_actual_number_of_shards(
    tmp_path: Path, configured: int, cut: int, expected: int
) -> None:
    peers = [outcome(index, State.KILLED, *[account(f"peer-{index}")] * cut) for index in range(2)]
    settings = {"exchange": {"wire": "float32", "shards": configured}}
    summary = summarize(settings, tmp_path, 1.0, peers, None)
    assert summary["exchange"] == {"wire": "float32", "shards": expected}
    assert settings["exchange"]["shards"] == configured
