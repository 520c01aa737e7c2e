"""Books of receipts that are asked for from outside, of peers that say what a test wants."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rumor.gossip import Envelope, Member, Phase, TransportError
from rumor.gossip.receipts.book import Book
from rumor.gossip.receipts.statement import Life, Link, Statement
from rumor.gossip.transport.keys.keyring import Keyring
from rumor.gossip.wire.messages import Body, Consult, Extract, Hello
from rumor.train.observe import auditor as auditing
from rumor.train.observe.auditor import Auditor
from rumor.train.observe.probe import View

from ...gossip.receipts.market import SWARM, HashKeys, signed_promise, signed_receipt
from .fake_network import a_member

KEYRING = cast(Keyring, None)
A, B = Life("a", 1), Life("b", 1)

Answers = Callable[[int], list[Extract]]


class FakeProbe:
    """Stands in place of a probe: each peer's answers are a function of the revision asked for."""

    def __init__(self, members: list[Member], swarm: bytes = SWARM) -> None:
        self.members = members
        self.swarm = swarm
        self.answers: dict[str, Answers] = {}
        self.lives: dict[str, int] = {}
        self.asked: list[tuple[str, int]] = []
        self.now = 0.0
        self.closed = False
        self._came: list[Envelope] = []

    def view(self, address: str) -> View:
        first = self.members[0]
        return View(
            place=address,
            id=first.id,
            incarnation=1,
            swarm=self.swarm,
            schema=bytes(16),
            members=tuple(self.members),
        )

    def post(self, place: str, view: View, member: Member, body: Body) -> bool:
        assert isinstance(body, Consult)
        self.asked.append((member.id, body.after))
        answers = self.answers.get(member.id)
        if answers is None:
            return False
        self._came += [self.envelope(member.id, told) for told in answers(body.after)]
        return True

    def envelope(self, id: str, body: Body, swarm: bytes = SWARM) -> Envelope:
        return Envelope(
            swarm=swarm,
            schema=bytes(16),
            source=id,
            source_incarnation=self.lives.get(id, 1),
            destination="asker",
            destination_incarnation=1,
            body=body,
        )

    def heard(self, timeout_s: float) -> Iterator[Envelope]:
        self.now += timeout_s
        came, self._came = self._came, []
        yield from came

    def __exit__(self, *_: object) -> None:
        self.closed = True


def auditor_of(probe: FakeProbe, monkeypatch: pytest.MonkeyPatch) -> Auditor:
    monkeypatch.setattr(auditing, "Probe", lambda **_: probe)
    return Auditor("host:1", keyring=KEYRING, clock=lambda: probe.now)


def book_of_links(count: int) -> Book:
    book = Book(Life("a", 1), SWARM, HashKeys("a"), lambda _: 100)
    for number in range(1, count + 1):
        promise = signed_promise(Link(B, Life(f"x{number}", 1)), number, 1, number)
        book.take(signed_receipt(promise, 1, 1))
    return book


def paged(book: Book, statements_max: int) -> Answers:
    def answers(after: int) -> list[Extract]:
        told, _, revision = book.page(after, statements_max)
        more = revision < book.revision
        return [Extract(revision=revision, more=more, shards=1, statements=tuple(told))]

    return answers


def test_a_book_is_asked_for_until_all_of_it_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    book = book_of_links(10)
    probe = FakeProbe([a_member("a")])
    probe.answers["a"] = paged(book, 3)
    with auditor_of(probe, monkeypatch) as auditor:
        auditor.ask(9.0)
        (told,) = auditor.answered
        assert told.statements == book.since(0)[0] and auditor.silent == []
        assert auditor.swarm == SWARM
        # The next time, only what is new.
        book.take(signed_promise(Link(A, B), 1, 5, 5))
        probe.asked.clear()
        auditor.ask(9.0)
        assert probe.asked == [("a", book.revision - 1)]
        assert told.statements == book.since(0)[0]
    assert probe.closed


def test_those_who_tell_nothing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [a_member(id) for id in "abcd"]
    left = a_member("gone", phase=Phase.LEFT)
    probe = FakeProbe([*members, left, a_member("dialer", addresses=())])
    probe.answers["a"] = paged(book_of_links(1), 9)
    probe.answers["b"] = lambda _: []  # it takes the question
    never_ends = Extract(revision=0, more=True, shards=1)
    probe.answers["d"] = lambda _: [never_ends]
    auditor = auditor_of(probe, monkeypatch)
    auditor.ask(1.0)
    assert auditor.silent == ["b", "c", "d"]
    assert [told.member.id for told in auditor.answered] == ["a"]
    # One question may be lost: it is asked again, but not all the time.
    assert 3 <= sum(id == "b" for id, _ in probe.asked) <= 5


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    auditor = auditor_of(FakeProbe([a_member("a")]), monkeypatch)
    with pytest.raises(TransportError, match="no member has answered"):
        auditor.ask(1.0)


def test_a_swarm_without_receipts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = FakeProbe([a_member("a")])
    probe.answers["a"] = lambda _: [Extract(revision=0, more=False, shards=0)]
    with pytest.raises(TransportError, match="has no receipts"):
        auditor_of(probe, monkeypatch).ask(1.0)


def test_who_belongs_to_no_swarm_cannot_be_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = FakeProbe([a_member("a")], swarm=b"")
    with pytest.raises(TransportError, match="belongs to no swarm yet"):
        auditor_of(probe, monkeypatch)
    assert probe.closed


def test_a_later_life_has_another_book(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = book_of_links(4), book_of_links(2)
    probe = FakeProbe([a_member("a")])
    calls: list[int] = []

    def answers(after: int) -> list[Extract]:
        calls.append(after)
        if len(calls) == 3:
            probe.lives["a"] = 2
        return paged(first if len(calls) < 3 else second, 1)(after)

    probe.answers["a"] = answers
    auditor = auditor_of(probe, monkeypatch)
    auditor.ask(9.0)
    (told,) = auditor.answered
    assert (told.incarnation, told.statements) == (2, second.since(0)[0])
    assert calls[:4] == [0, 2, 4, 0]


def test_what_strangers_and_other_swarms_say_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = FakeProbe([a_member("a")])
    book, auditor = book_of_links(1), auditor_of(probe, monkeypatch)
    (extract,) = paged(book, 9)(0)

    def answers(_: int) -> list[Extract]:
        for envelope in (
            probe.envelope("stranger", extract),
            probe.envelope("a", extract, b"x" * 16),
            probe.envelope("a", Hello(members=(), rooted=False, reply=False)),
        ):
            auditor._take(envelope)
        return []

    probe.answers["a"] = answers
    with pytest.raises(TransportError, match="no member has answered"):
        auditor.ask(1.0)


def test_what_is_told_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "_BOOK_MAX", 8)
    probe = FakeProbe([a_member("a")])
    (statement,) = book_of_links(1).since(0)[0]
    proof = (statement, statement)

    def answers(after: int) -> list[Extract]:
        told: dict[str, Any] = {"statements": (statement,) * 4, "proofs": (proof, ())}
        return [Extract(revision=after + 1, more=True, shards=1, **told)]

    probe.answers["a"] = answers
    auditor = auditor_of(probe, monkeypatch)
    with pytest.raises(TransportError):
        auditor.ask(1.0)
    kept = auditor.books["a"]
    assert len(kept.statements) == 8 and len(kept.proofs) == 2


def test_the_desk_tells_a_book_part_by_part() -> None:
    from rumor.train.runtime.telling import status
    from rumor.train.runtime.telling.status import _extract

    book = book_of_links(3)
    book.take(signed_promise(Link(B, Life("x1", 1)), 1, 7, 7))
    accounts = (1, 2)
    protocol: Any = SimpleNamespace(receipts=SimpleNamespace(book=book), accounts=accounts)
    whole = _extract(protocol, 0)
    assert (whole.revision, whole.more, whole.shards) == (book.revision, False, 2)
    assert len(whole.statements) == 3 and len(whole.proofs) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(status, "_STATEMENTS_TOLD", 2)
        patch.setattr(status, "STATEMENTS_MAX", 1)
        found: list[Statement] = []
        after = 0
        while True:
            part = _extract(protocol, after)
            assert len(part.statements) <= 2 and part.proofs == ()
            found += part.statements
            after = part.revision
            if not part.more:
                break
    assert tuple(found) == whole.statements
    for empty in (
        SimpleNamespace(receipts=None),
        SimpleNamespace(receipts=SimpleNamespace(book=None)),
    ):
        assert _extract(cast(Any, empty), 0) == Extract(revision=0, more=False, shards=0)
