"""An account is the sum of its entries; an audit accounts for every unit."""

from copy import deepcopy
from dataclasses import replace

import pytest

from rumor.gossip.effects.ledger import Account, Audit, Entry, Kind, audit
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.weight import UNIT


def account(id: str, *entries: Entry, incarnation: int = 1) -> Account:
    made = Account(id, incarnation)
    for entry in entries:
        made.apply(entry)
    return made


FOUNDED = Entry(Kind.FOUNDED, 100)
PUSHED = Entry(Kind.PUSHED, 40, "b", 1, 1)


def test_a_push_moves_units_into_escrow_and_an_ack_returns_the_rest() -> None:
    a = account("a", FOUNDED, PUSHED)
    assert (a.weight, a.outstanding["b", 1].escrow) == (60, 40)
    a.apply(Entry(Kind.SETTLED, 30, "b", 1, 1))
    assert (a.weight, a.outstanding) == (70, {})


@pytest.mark.parametrize(
    "entry",
    [
        Entry(Kind.BURNED, 61),
        Entry(Kind.PUSHED, 61, "c", 1, 1),
        Entry(Kind.PUSHED, 10, "b", 1, 2),
        Entry(Kind.SETTLED, 41, "b", 1, 1),
        Entry(Kind.SETTLED, 1, "b", 1, 2),
        Entry(Kind.STRANDED, 0, "c", 1, 1),
        Entry(Kind.ACCEPTED, 5, "d", 1, 3),
        Entry(Kind.ACCEPTED, -1, "d", 1, 4),
    ],
    ids=lambda entry: f"{entry.kind} {entry.weight} {entry.peer}{entry.seq}",
)
def test_a_contradicting_entry_does_not_change_the_account(entry: Entry) -> None:
    a = account("a", FOUNDED, PUSHED, Entry(Kind.ACCEPTED, 0, "d", 1, 3))
    before = deepcopy(a)
    with pytest.raises(LocalProtocolError):
        a.apply(entry)
    assert a == before


ACCEPTED = Entry(Kind.ACCEPTED, 30, "a", 1, 1)
FOUND_AGAIN = [Entry(kind, 0, "b", 1, 1) for kind in (Kind.STRANDED, Kind.FOUND)]


@pytest.mark.parametrize(
    ("a", "b", "dead", "expected"),
    [
        ([], [], (), {"held": 60, "in_flight": 40}),
        ([], [ACCEPTED], (), {"held": 90, "in_flight": 10}),
        ([Entry(Kind.STRANDED, 0, "b", 1, 1)], [ACCEPTED], (), {"held": 90, "stranded": 10}),
        (FOUND_AGAIN, [], (), {"held": 60, "in_flight": 40}),
        ([Entry(Kind.WRITTEN_OFF, 0, "b", 1, 1)], [ACCEPTED], (), {"held": 90, "burned": 10}),
        ([Entry(Kind.BURNED, 20)], [], (), {"held": 40, "in_flight": 40, "burned": 20}),
        ([], [ACCEPTED], (("a", 1),), {"held": 30, "died": 70}),
        ([], [ACCEPTED], (("b", 1),), {"held": 60, "in_flight": 10, "died": 30}),
        (FOUND_AGAIN[:1], [ACCEPTED], (("a", 1),), {"held": 30, "died": 70}),
    ],
)
def test_an_audit_accounts_for_every_unit(
    a: list[Entry], b: list[Entry], dead: tuple[tuple[str, int], ...], expected: dict[str, int]
) -> None:
    accounts = [account("a", FOUNDED, PUSHED, *a), account("b", *b)]
    nowhere = {"held": 0, "in_flight": 0, "stranded": 0, "burned": 0, "died": 0}
    found = audit(accounts, dead)
    assert found == Audit(founded=100, **(nowhere | expected))
    assert found.balanced
    # Units out of nowhere are detected.
    assert not audit([account("b", Entry(Kind.ACCEPTED, 5, "a", 1, 1))]).balanced


def test_the_repr_of_an_audit_is_in_units() -> None:
    founded, pushed = Entry(Kind.FOUNDED, 3 * UNIT), Entry(Kind.PUSHED, UNIT // 2, "b", 1, 1)
    assert repr(audit([account("a", founded, pushed)])) == (
        "Audit(founded=3, held='5/2^1', in_flight='1/2^1', stranded=0, burned=0, died=0)"
    )


def test_weight_accepted_by_one_shard_does_not_count_for_another() -> None:
    push, accept = replace(PUSHED, shard=1), replace(ACCEPTED, shard=1)
    accounts = [Account(id, 1, shard=shard) for id in "ab" for shard in (0, 1)]
    for shard in (0, 1):
        accounts[shard].apply(replace(FOUNDED, shard=shard))
    accounts[1].apply(push)
    accounts[3].apply(accept)
    found = audit(accounts)
    assert (found.held, found.in_flight, found.balanced) == (190, 10, True)
    assert audit([accounts[0], accounts[2]]).held == 100
