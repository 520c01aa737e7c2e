"""Where every unit of weight is, from hand-made ledgers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rumor.cli.launch.config import Place
from rumor.cli.launch.monitor import LifeEnd, PeerView, State
from rumor.cli.launch.summary import FIGURES, Outcome, balance, estimate, read_outcome, summarize
from rumor.gossip.effects.ledger import Account, Entry, Kind
from rumor.gossip.weight import ONE, UNIT


def account(id: str, *entries: Entry, life: int = 1) -> Account:
    """Of a founder, in its first life."""
    made = Account(id, life)
    founded = (Entry(Kind.FOUNDED, ONE),) if life == 1 else ()
    for entry in (*founded, *entries):
        made.apply(entry)
    return made


def outcome(index: int, state: State, account: Account | None) -> Outcome:
    return Outcome(
        index=index,
        id=f"peer-{index}",
        state=state,
        why="",
        script_error="",
        steps=10,
        figures=FIGURES,
        accounts=() if account is None else (account,),
        model=None,
        rows=(),
    )


def pushed(weight: int, to: str) -> Entry:
    return Entry(Kind.PUSHED, weight, to, 1, 1)


def accepted(weight: int, of: str) -> Entry:
    return Entry(Kind.ACCEPTED, weight, of, 1, 1)


def settled(weight: int, by: str) -> Entry:
    return Entry(Kind.SETTLED, weight, by, 1, 1)


def test_without_deaths_all_that_was_founded_is_there() -> None:
    half = ONE // 2
    one = account("peer-0", pushed(half, "peer-1"), settled(half, "peer-1"))
    two = account("peer-1", accepted(half, "peer-0"))
    result = balance([outcome(0, State.FINISHED, one), outcome(1, State.FINISHED, two)])
    assert result.weight_total == result.weight_expected == 2 * ONE
    assert result.deaths == ()


@pytest.mark.parametrize("state", [State.KILLED, State.FAILED, State.LEFT])
def test_weight_dies_with_a_peer_that_did_not_hand_it_on(state: State) -> None:
    outcomes = [outcome(0, State.FINISHED, account("peer-0")), outcome(1, state, account("peer-1"))]
    result = balance(outcomes)
    assert result.weight_total == result.weight_expected == ONE
    (death,) = result.deaths
    assert (death.outcome.id, death.weight) == ("peer-1", ONE)


def test_what_a_dead_peer_pushed_and_nobody_accepted_died_with_it() -> None:
    dead = account("peer-1", pushed(ONE // 2, "peer-0"))
    outcomes = [outcome(0, State.FINISHED, account("peer-0")), outcome(1, State.KILLED, dead)]
    result = balance(outcomes)
    assert result.deaths[0].weight == ONE
    assert result.weight_total == result.weight_expected == ONE


def test_what_a_dead_peer_pushed_and_another_accepted_lives_on() -> None:
    dead = account("peer-1", pushed(ONE // 2, "peer-0"))
    other = account("peer-0", accepted(ONE // 2, "peer-1"))
    result = balance([outcome(0, State.FINISHED, other), outcome(1, State.KILLED, dead)])
    assert result.deaths[0].weight == ONE // 2
    assert result.weight_total == result.weight_expected == ONE + ONE // 2


def test_escrow_toward_a_dead_peer_is_stranded_and_counts_as_there() -> None:
    stuck = account(
        "peer-0", pushed(ONE // 4, "peer-1"), Entry(Kind.STRANDED, ONE // 4, "peer-1", 1, 1)
    )
    outcomes = [outcome(0, State.FINISHED, stuck), outcome(1, State.KILLED, account("peer-1"))]
    result = balance(outcomes)
    assert result.audit.stranded == ONE // 4
    assert result.weight_total == result.weight_expected == ONE


def test_each_death_is_counted_by_itself() -> None:
    outcomes = [
        outcome(0, State.KILLED, account("peer-0", pushed(ONE // 2, "peer-1"))),
        outcome(1, State.KILLED, account("peer-1", accepted(ONE // 2, "peer-0"))),
        outcome(2, State.FINISHED, account("peer-2")),
    ]
    result = balance(outcomes)
    assert [death.weight for death in result.deaths] == [ONE // 2, ONE + ONE // 2]
    assert result.audit.died == 2 * ONE
    assert result.weight_total == result.weight_expected == ONE


def test_weight_that_a_leaver_handed_on_or_burned_is_no_death() -> None:
    gave = account("peer-0", pushed(ONE, "peer-1"), settled(ONE, "peer-1"))
    burned = account("peer-1", accepted(ONE, "peer-0"), Entry(Kind.BURNED, 2 * ONE))
    result = balance([outcome(0, State.LEFT, gave), outcome(1, State.LEFT, burned)])
    assert result.deaths == ()
    assert result.audit.burned == 2 * ONE
    assert result.weight_total == result.weight_expected == 0


def test_weight_from_nowhere_shows() -> None:
    forged = account("peer-0", accepted(5, "peer-9"))
    result = balance([outcome(0, State.FINISHED, forged)])
    assert (result.weight_total, result.weight_expected) == (ONE + 5, ONE)


def test_a_peer_that_never_opened_a_ledger_took_nothing_with_it() -> None:
    outcomes = [outcome(0, State.FINISHED, account("peer-0")), outcome(1, State.FAILED, None)]
    result = balance(outcomes)
    assert [(death.outcome.id, death.weight) for death in result.deaths] == [("peer-1", 0)]
    assert result.weight_total == result.weight_expected == ONE


def with_former(
    last: Outcome, *earlier: Account, state: State = State.KILLED, step: int = 5
) -> Outcome:
    """The same peer with lives before it, one for each account."""
    ends = tuple(
        LifeEnd(state=state, why="SIGKILL", step=step, lives=frozenset({each.life}))
        for each in earlier
    )
    return replace(last, earlier=ends, earlier_accounts=earlier)


def test_each_life_that_was_killed_is_a_death_of_its_own() -> None:
    first = account("peer-1", pushed(ONE // 2, "peer-0"))
    second = account("peer-1", Entry(Kind.ACCEPTED, ONE // 4, "peer-0", 1, 1), life=2)
    third = account("peer-1", life=3)
    gave = (
        Entry(Kind.PUSHED, ONE // 4, "peer-1", 2, 1),
        Entry(Kind.SETTLED, ONE // 4, "peer-1", 2, 1),
    )
    zero = account("peer-0", accepted(ONE // 2, "peer-1"), *gave)
    one = with_former(outcome(1, State.FINISHED, third), first, second)
    result = balance([outcome(0, State.FINISHED, zero), one])
    assert [(death.life, death.weight, death.end.step) for death in result.deaths] == [
        (1, ONE // 2, 5),
        (2, ONE // 4, 5),
    ]
    assert result.audit.died == ONE // 2 + ONE // 4 and result.audit.balanced
    assert result.weight_total == result.weight_expected == 2 * ONE - ONE // 2 - ONE // 4


def test_the_last_life_is_a_death_beside_those_before_it() -> None:
    one = outcome(1, State.KILLED, account("peer-1", Entry(Kind.FOUNDED, 7), life=2))
    result = balance([with_former(one, account("peer-1"))])
    assert [(death.life, death.weight) for death in result.deaths] == [(1, ONE), (2, 7)]
    assert result.weight_total == result.weight_expected == 0


def test_a_last_life_that_opened_no_ledger_takes_nothing_with_it() -> None:
    result = balance([with_former(outcome(1, State.FAILED, None), account("peer-1"))])
    assert [(death.life, death.weight) for death in result.deaths] == [(1, ONE), (2, 0)]


def test_escrow_toward_a_life_that_is_over_is_burned_as_far_as_it_was_not_accepted() -> None:
    first = account("peer-1", accepted(ONE // 4, "peer-0"))
    written = Entry(Kind.WRITTEN_OFF, ONE // 2, "peer-1", 1, 1)
    zero = account("peer-0", pushed(ONE // 2, "peer-1"), written)
    one = with_former(outcome(1, State.FINISHED, account("peer-1", life=2)), first)
    result = balance([outcome(0, State.FINISHED, zero), one])
    assert (result.audit.burned, result.audit.died) == (ONE // 4, ONE + ONE // 4)
    assert result.audit.balanced and result.weight_total == result.weight_expected == ONE // 2


def test_the_files_of_all_lives_are_read_and_the_last_one_told_apart(tmp_path: Path) -> None:
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
    found = read_outcome(place, PeerView("peer-1", 20, State.KILLED, 20))
    assert [account.weight for account in found.accounts] == [30 * UNIT]
    assert [account.weight for account in found.earlier_accounts] == [10 * UNIT, 20 * UNIT]
    assert found.weight == 30 * UNIT
    assert [row["step"] for row in found.rows] == [10, 20]
    gone = LifeEnd(state=State.KILLED, why="SIGKILL", step=20, lives=frozenset({("peer-1", 3)}))
    found = read_outcome(place, PeerView("peer-1", 20, State.FAILED, earlier=[gone]))
    assert found.accounts == () and len(found.earlier_accounts) == 3


def rows(sketches: dict[float, list[float]], steps_per_s: float = 10) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for unix_s, sketch in sketches.items():
        made.append({"step": unix_s * steps_per_s, "unix_s": unix_s, "sketch": sketch})
        made.append({"step": unix_s * steps_per_s + 1, "unix_s": unix_s, "sketch": None})
    return made


def test_it_is_the_spread_around_the_mean_over_the_norm_of_the_mean() -> None:
    instants, distances = estimate([rows({1: [3.0, 1.0]}), rows({1: [3.0, -1.0]})])
    assert instants.tolist() == [1]
    assert distances == pytest.approx([1 / 3])


def test_sketches_are_paired_by_the_nearest_time() -> None:
    one = rows({0.0: [1.0], 1.0: [1.0], 2.0: [1.0]})
    two = rows({0.1: [1.0], 1.1: [3.0]})
    instants, distances = estimate([one, two])
    assert instants.tolist() == [0, 1, 2]
    assert distances == pytest.approx([0, 0.5, 0.5])


def test_a_dead_peer_counts_until_its_death() -> None:
    one = rows({t: [1.0] for t in range(10)})
    two = rows({t: [1.0] for t in range(10)})
    dead = rows({t: [4.0] for t in range(4)})
    instants, distances = estimate([one, two, dead])
    assert len(instants) == 10
    assert (distances[:4] > 0).all() and (distances[6:] == 0).all()


def test_one_peer_has_nobody_to_disagree_with() -> None:
    nobody: list[list[dict[str, object]]] = [[], []]
    for peers in (nobody[:0], nobody, [rows({1: [1.0]})], [rows({1: [1.0]}), []]):
        instants, distances = estimate(peers)
        assert len(instants) == len(distances) == 0


def test_a_mean_of_zero_is_no_division_by_zero() -> None:
    _, distances = estimate([rows({1: [1.0]}), rows({1: [-1.0]})])
    assert np.isfinite(distances).all()


@pytest.mark.parametrize(("typed", "cut", "told"), [(1, 10, 10), (4, 4, 4), (4, 0, 4), (1, 1, 1)])
def test_a_summary_says_into_how_many_shards_the_vector_was_cut(
    tmp_path: Path, typed: int, cut: int, told: int
) -> None:
    peers = [
        replace(outcome(index, State.KILLED, None), accounts=(account(f"peer-{index}"),) * cut)
        for index in range(2)
    ]
    described = {"exchange": {"wire": "float32", "shards": typed}}
    summary = summarize(described, tmp_path, 1.0, peers, None)
    assert summary["exchange"] == {"wire": "float32", "shards": told}
    assert described["exchange"]["shards"] == typed
