"""Where every unit of weight is, from hand-made ledgers."""

import pytest

from rumor.cli.outcome import Outcome, balance
from rumor.cli.watch import State
from rumor.gossip import ONE, Account, Entry, Kind


def account(id: str, *entries: Entry) -> Account:
    made = Account(id, 1)
    for entry in (Entry(Kind.FOUNDED, ONE), *entries):
        made.apply(entry)
    return made


def outcome(index: int, state: State, account: Account | None) -> Outcome:
    return Outcome(
        index=index,
        id=f"peer-{index}",
        state=state,
        why="",
        steps=10,
        steps_per_s=1.0,
        accuracy=None,
        loss=None,
        messages=0,
        bytes_sent=0,
        pushes=0,
        skipped=0,
        refusals=0,
        accounts=() if account is None else (account,),
        model=None,
        rows=(),
    )


def pushed(units: int, to: str) -> Entry:
    return Entry(Kind.PUSHED, units, to, 1, 1)


def accepted(units: int, of: str) -> Entry:
    return Entry(Kind.ACCEPTED, units, of, 1, 1)


def settled(units: int, by: str) -> Entry:
    return Entry(Kind.SETTLED, units, by, 1, 1)


def test_without_deaths_all_that_was_founded_is_there() -> None:
    half = ONE // 2
    one = account("peer-0", pushed(half, "peer-1"), settled(half, "peer-1"))
    two = account("peer-1", accepted(half, "peer-0"))
    result = balance([outcome(0, State.FINISHED, one), outcome(1, State.FINISHED, two)])
    assert result.units_total == result.units_expected == 2 * ONE
    assert result.deaths == ()


@pytest.mark.parametrize("state", [State.KILLED, State.FAILED, State.LEFT])
def test_weight_dies_with_a_peer_that_did_not_hand_it_on(state: State) -> None:
    outcomes = [
        outcome(0, State.FINISHED, account("peer-0")),
        outcome(1, state, account("peer-1")),
    ]
    result = balance(outcomes)
    assert result.units_total == result.units_expected == ONE
    (death,) = result.deaths
    assert (death.outcome.id, death.units) == ("peer-1", ONE)


def test_what_a_dead_peer_pushed_and_nobody_accepted_died_with_it() -> None:
    dead = account("peer-1", pushed(ONE // 2, "peer-0"))
    outcomes = [
        outcome(0, State.FINISHED, account("peer-0")),
        outcome(1, State.KILLED, dead),
    ]
    result = balance(outcomes)
    assert result.deaths[0].units == ONE
    assert result.units_total == result.units_expected == ONE


def test_what_a_dead_peer_pushed_and_another_accepted_lives_on() -> None:
    dead = account("peer-1", pushed(ONE // 2, "peer-0"))
    other = account("peer-0", accepted(ONE // 2, "peer-1"))
    result = balance([outcome(0, State.FINISHED, other), outcome(1, State.KILLED, dead)])
    assert result.deaths[0].units == ONE // 2
    assert result.units_total == result.units_expected == ONE + ONE // 2


def test_escrow_toward_a_dead_peer_is_stranded_and_counts_as_there() -> None:
    stuck = account(
        "peer-0", pushed(ONE // 4, "peer-1"), Entry(Kind.STRANDED, ONE // 4, "peer-1", 1, 1)
    )
    outcomes = [
        outcome(0, State.FINISHED, stuck),
        outcome(1, State.KILLED, account("peer-1")),
    ]
    result = balance(outcomes)
    assert result.audit.stranded == ONE // 4
    assert result.units_total == result.units_expected == ONE


def test_each_death_is_counted_by_itself() -> None:
    outcomes = [
        outcome(0, State.KILLED, account("peer-0", pushed(ONE // 2, "peer-1"))),
        outcome(1, State.KILLED, account("peer-1", accepted(ONE // 2, "peer-0"))),
        outcome(2, State.FINISHED, account("peer-2")),
    ]
    result = balance(outcomes)
    assert [death.units for death in result.deaths] == [ONE // 2, ONE + ONE // 2]
    assert result.audit.died == 2 * ONE
    assert result.units_total == result.units_expected == ONE


def test_weight_that_a_leaver_handed_on_or_burned_is_no_death() -> None:
    gave = account("peer-0", pushed(ONE, "peer-1"), settled(ONE, "peer-1"))
    burned = account("peer-1", accepted(ONE, "peer-0"), Entry(Kind.BURNED, 2 * ONE))
    result = balance([outcome(0, State.LEFT, gave), outcome(1, State.LEFT, burned)])
    assert result.deaths == ()
    assert result.audit.burned == 2 * ONE
    assert result.units_total == result.units_expected == 0


def test_weight_from_nowhere_shows() -> None:
    forged = account("peer-0", accepted(5, "peer-9"))
    result = balance([outcome(0, State.FINISHED, forged)])
    assert (result.units_total, result.units_expected) == (ONE + 5, ONE)


def test_a_peer_that_never_opened_a_ledger_took_nothing_with_it() -> None:
    outcomes = [
        outcome(0, State.FINISHED, account("peer-0")),
        outcome(1, State.FAILED, None),
    ]
    result = balance(outcomes)
    assert [(death.outcome.id, death.units) for death in result.deaths] == [("peer-1", 0)]
    assert result.units_total == result.units_expected == ONE
