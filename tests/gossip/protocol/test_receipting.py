"""Receipts in the protocol: shares that wait for what covers them, and liars that are evicted."""

import pytest

from rumor.gossip import ONE, Protocol
from rumor.gossip.effects.effects import Mix
from rumor.gossip.effects.events import PeerEvicted, ShareRefused
from rumor.gossip.receipts.audit import Verdict, audit
from rumor.gossip.receipts.statement import Life, Link
from rumor.gossip.wire.messages import Ack, Offer, Push, Query, Receipts

from ..receipts.market import HashKeys, signed_promise, signed_receipt
from ..scene import ANCHOR, WIDE, Scene

A, B, C = (Life(name, 1) for name in "abc")


class Keys(HashKeys):
    """Keys of a swarm in which all may found but two."""

    check = "share"

    def grant(self, peer: str) -> int:
        """In founders."""
        return 0 if peer in ("mallory", "newcomer") else ONE


def scene_of(*ids: str, wide: bool = False, shards: int = 1) -> Scene:
    scene = Scene(WIDE) if wide else Scene()
    scene.roll = Keys
    scene.founded(*ids, shards=shards)
    return scene


def book_of(protocol: Protocol):  # type: ignore[no-untyped-def]
    assert protocol.receipts is not None and protocol.receipts.book is not None
    return protocol.receipts.book


@pytest.mark.parametrize(("wide", "shards"), [(False, 1), (True, 1), (False, 2), (True, 2)])
def test_a_share_is_signed_for_by_both_ends(wide: bool, shards: int) -> None:
    scene = scene_of("a", "b", wide=wide, shards=shards)

    def push_all(context) -> None:  # type: ignore[no-untyped-def]
        context.push_shards("b", {shard: ONE // 4 for shard in range(shards)})

    scene.act("a", push_all)
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()

    for peer in scene.peers.values():
        receipt = book_of(peer).receipts[Link(A, B)]
        assert receipt.accepted == receipt.decided == receipt.promise.offered == shards * ONE // 4
    assert scene.peers["b"].weight == shards * (ONE + ONE // 4)
    assert scene.peers["a"].weight == shards * (ONE - ONE // 4)
    assert not scene.peers["a"].account.outstanding


def test_what_is_returned_comes_back_only_with_a_receipt() -> None:
    scene = scene_of("a", "b")
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    scene.refuse_all("b")
    scene.deliver(lose=(Receipts,))
    assert scene.peers["a"].weight == ONE - ONE // 4

    scene.wait(1.0)
    scene.wake("a")  # asks again
    scene.deliver()
    assert scene.peers["a"].weight == ONE
    assert book_of(scene.peers["a"]).receipts[Link(A, B)].returned == ONE // 4


def test_a_share_waits_until_it_is_promised() -> None:
    scene = scene_of("a", "b")
    scene.push("a", "b", ONE // 4)
    scene.deliver(lose=(Receipts,))
    assert not any(isinstance(effect, Mix) for effect in scene.mix_all("b"))

    scene.wait(1.0)
    assert scene.sent(scene.wake("a"), Query)  # and promises again
    scene.deliver()
    assert any(isinstance(effect, Mix) for effect in scene.mix_all("b"))


def test_a_share_that_is_never_covered_goes_back() -> None:
    scene = scene_of("a", "b")
    scene.push("a", "b", ONE // 4)
    scene.deliver(lose=(Receipts,))
    scene.wait(scene.config.stall_s)
    effects = scene.step("b")
    assert [e.reason for e in effects if isinstance(e, ShareRefused)] == [
        "its weight is not covered by receipts"
    ]


def test_what_was_promised_is_not_taken_back_for_the_network_refusing_it() -> None:
    scene = scene_of("a", "b")
    scene.push("a", "b", ONE // 4)
    (push,) = [each for each in scene.mail if isinstance(each.body, Push)]
    scene.mail.clear()
    scene.unsent(push)
    assert scene.peers["a"].weight == ONE - ONE // 4

    scene.wait(1.0)
    scene.wake("a")
    scene.deliver()  # the question fences it
    assert scene.peers["a"].weight == ONE


def test_made_up_weight_is_not_mixed() -> None:
    scene = scene_of("a", "b")
    scene.introduce("mallory", "b")
    mallory = Life("mallory", 1)
    promise = signed_promise(Link(mallory, B), 1, ONE, ONE)
    scene.receive(scene.letter("mallory", "b", Receipts((promise,))))
    scene.receive(scene.letter("mallory", "b", _push(ONE), frame_bytes=64))
    assert not any(isinstance(effect, Mix) for effect in scene.mix_all("b"))


def _push(escrow: int) -> Push:
    return Push(seq=1, escrow=escrow, size_bytes=64, epoch=0, round=0, note=0, step=0)


def test_who_spends_weight_twice_is_evicted_by_all_who_hear_of_it() -> None:
    scene = scene_of("a", "b", "c")
    scene.push("a", "b", ONE // 2)
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()
    twin = signed_promise(Link(A, C), 1, ONE, ONE)

    effects = scene.receive(scene.letter("a", "c", Receipts((twin,))))
    assert not any(isinstance(e, PeerEvicted) for e in effects)  # it has heard one side
    evicted = []
    for _ in range(6):
        scene.wait(1.0)
        for id in "bc":
            evicted += scene.wake(id)
        while scene.mail:
            envelope = scene.mail.popleft()
            if envelope.destination in "bc":
                evicted += scene.receive(envelope)
    assert [e for e in evicted if isinstance(e, PeerEvicted)] == 2 * [
        PeerEvicted("a", "signed two promises of one number")
    ]
    for id in "bc":
        assert "a" not in [member.id for member in scene.peers[id].live()]
        # Nothing that it says is read.
        before = len(scene.peers[id].live())
        scene.introduce("a", id)
        assert len(scene.peers[id].live()) == before


def test_weight_of_a_liar_is_written_off_by_those_who_have_it() -> None:
    scene = scene_of("b", "c")
    scene.introduce("mallory", "b")
    mallory, other = Life("mallory", 1), Life("d", 1)
    covered = signed_promise(Link(other, mallory), 1, ONE, ONE)
    push = signed_promise(Link(mallory, B), 1, ONE, ONE)
    told = (signed_receipt(covered, ONE, ONE), push)
    scene.receive(scene.letter("mallory", "b", Receipts(told)))
    scene.receive(scene.letter("mallory", "b", _push(ONE), frame_bytes=64))
    scene.mix_all("b")
    assert scene.peers["b"].weight == 2 * ONE

    # It has told d that it took nothing.
    denied = signed_receipt(covered, ONE, 0)
    effects = scene.receive(scene.letter("c", "b", Receipts((denied,))))
    assert PeerEvicted("mallory", "signed for a share twice, and differently") in effects
    for _ in range(3):
        scene.wait(1.0)
        scene.wake("b")
    assert scene.peers["b"].weight == ONE
    assert scene.peers["b"].account.burned == ONE


def test_a_share_that_is_coming_still_is_not_looked_at() -> None:
    scene = scene_of("a", "b", wide=True)
    scene.push("a", "b", ONE // 4)
    scene.deliver(Offer, Receipts)
    assert scene.step("b") == []
    scene.deliver()
    assert any(isinstance(effect, Mix) for effect in scene.mix_all("b"))


def test_a_share_is_signed_for_while_another_of_its_sender_is_coming_still() -> None:
    scene = scene_of("a", "b", wide=True, shards=2)
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    scene.act("a", lambda context: context.push("b", ONE // 2, shard=1))
    scene.deliver(Offer, Receipts)
    scene.mix_all("b")
    scene.deliver(Receipts, Ack)
    receipt = book_of(scene.peers["a"]).receipts[Link(A, B)]
    assert receipt.decided == receipt.accepted == ONE // 4
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()
    receipt = book_of(scene.peers["a"]).receipts[Link(A, B)]
    assert receipt.decided == receipt.accepted == 3 * ONE // 4
    assert not book_of(scene.peers["a"]).convicted


def test_who_is_alone_tells_nobody_and_all_tell_once_in_an_interval() -> None:
    scene = Scene()
    scene.roll = Keys
    scene.enter("a")
    scene.join("a")
    scene.wait(1.0)
    assert not scene.sent(scene.wake("a"), Receipts)

    scene = scene_of("a", "b")
    scene.push("a", "b", ONE // 4)
    scene.wait(1.0)
    scene.wake("a")
    scene.mail.clear()
    assert not scene.sent(scene.wake("a"), Receipts)


def test_who_is_convicted_need_not_be_known() -> None:
    scene = scene_of("a", "b", "c")
    scene.push("c", "b", ONE // 4)
    scene.deliver()
    ghost = Life("ghost", 1)
    twins = signed_promise(Link(ghost, C), 9, ONE, ONE), signed_promise(Link(ghost, C), 9, 1, ONE)
    effects = scene.receive(scene.letter("a", "b", Receipts(twins)))
    assert [e.peer for e in effects if isinstance(e, PeerEvicted)] == ["ghost"]
    assert any(isinstance(effect, Mix) for effect in scene.mix_all("b"))


def test_shares_of_the_evicted_go_back_and_nothing_more_is_pushed_to_it() -> None:
    scene = scene_of("a", "b")
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    twins = [signed_promise(Link(A, C), 9, ONE, ONE), signed_promise(Link(A, C), 9, 1, ONE)]
    proof = (tuple(twins),)
    scene.introduce("c", "b")
    effects = scene.receive(scene.letter("c", "b", Receipts((), proof)))
    assert ShareRefused("a", "its sender was evicted") in effects
    assert not scene.sent(scene.step("b"), Push)
    # One's own conviction changes nothing here: others act on it.
    scene.introduce("c", "a")
    assert not scene.receive(scene.letter("c", "a", Receipts((), proof)))


def test_who_passes_on_forged_statements_is_not_read_for_a_while() -> None:
    scene = scene_of("a", "b")
    false = signed_promise(Link(A, C), 1, ONE, ONE)
    false = type(false)(false.link, 1, 2 * ONE, 2 * ONE, false.signature)
    true = signed_promise(Link(A, C), 1, ONE, ONE)
    scene.receive(scene.letter("a", "b", Receipts((false,) * 10)))
    scene.receive(scene.letter("a", "b", Receipts((true,), ((true,),))))
    assert Link(A, C) not in book_of(scene.peers["b"]).promises
    scene.wait(1.0)
    scene.wake("b")
    scene.receive(scene.letter("a", "b", Receipts((true,))))
    assert Link(A, C) in book_of(scene.peers["b"]).promises


def test_without_receipts_statements_mean_nothing() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 4)
    assert not [each for each in scene.mail if isinstance(each.body, Receipts)]
    scene.receive(scene.letter("a", "b", Receipts()))
    assert scene.peers["b"].receipts is None


def test_outside_a_swarm_there_is_no_book() -> None:
    scene = Scene()
    scene.roll = Keys
    peer = scene.enter("a")
    assert peer.receipts is not None and peer.receipts.book is None
    scene.join("a", "b")
    scene.step("a", trained=False)
    scene.receive(scene.letter("b", "a", Receipts(), swarm=b""))
    assert peer.receipts.book is None
    scene.wait(1.0)
    scene.wake("a")


def test_a_newcomer_gets_the_whole_book_with_its_copy() -> None:
    scene = scene_of("a", "b")
    for source, to in ("ab", "ba", "ab"):
        scene.push(source, to, ONE // 4)
        scene.deliver()
        scene.mix_all(to)
        scene.deliver()
    scene.enter("newcomer")
    scene.join("newcomer", "a")
    for _ in range(4):
        scene.wait(1.0)
        scene.wake("newcomer")
        scene.deliver()
        for id in ("a", "b", "newcomer"):
            scene.step(id, trained=False)
            scene.deliver()
    assert scene.peers["newcomer"].weight > 0
    book = book_of(scene.peers["newcomer"])
    assert book.worth("newcomer") == scene.peers["newcomer"].weight
    assert sum(map(book.worth, scene.peers)) == 2 * ONE


def test_an_ack_of_more_than_was_signed_as_returned_is_none() -> None:
    scene = scene_of("a", "b")
    scene.push("a", "b", ONE // 4)
    scene.receive(scene.letter("b", "a", Ack(1, 0)))
    assert scene.peers["a"].weight == ONE - ONE // 4
    assert scene.peers["a"].swarm == ANCHOR


class AuditKeys(Keys):
    """Keys of a swarm whose receipts are looked at by audits alone."""

    check = "audit"


def audited(*ids: str, wide: bool = False) -> Scene:
    scene = Scene(WIDE) if wide else Scene()
    scene.roll = AuditKeys
    scene.founded(*ids)
    return scene


def verdict_of(scene: Scene) -> Verdict:
    books = [book_of(peer).since(0) for peer in scene.peers.values()]
    book = book_of(next(iter(scene.peers.values())))
    return audit(books, book.swarm, AuditKeys(""), AuditKeys("").grant)


def push_and_mix(scene: Scene, source: str, to: str, weight: int) -> None:
    scene.push(source, to, weight)
    scene.deliver()
    scene.mix_all(to)
    scene.deliver()


def test_for_audits_what_is_accepted_is_signed_once_in_an_interval() -> None:
    scene = audited("a", "b", "c")
    for weight in (ONE // 4, ONE // 8):
        push_and_mix(scene, "a", "b", weight)
        assert not book_of(scene.peers["a"]).receipts
    assert verdict_of(scene).is_sound  # what was promised counts
    assert {row.worth for row in verdict_of(scene).rows} == {ONE}

    scene.wait(1.0)
    (sent,) = scene.sent(scene.wake("b"), Receipts)
    assert len(sent.statements) == 1
    scene.deliver()
    for id in "ab":
        receipt = book_of(scene.peers[id]).receipts[Link(A, B)]
        assert receipt.accepted == receipt.decided == receipt.promise.offered == 3 * ONE // 8
    # Nobody else hears of it.
    assert not book_of(scene.peers["c"]).promises
    scene.wait(1.0)
    assert not scene.sent(scene.wake("a") + scene.wake("b"), Receipts)
    worth = {row.peer: row.worth for row in verdict_of(scene).rows}
    assert worth == {"a": scene.peers["a"].weight, "b": scene.peers["b"].weight}


def test_for_audits_a_share_waits_for_its_promise_alone() -> None:
    scene = audited("a", "b")
    scene.introduce("mallory", "b")
    promise = signed_promise(Link(Life("mallory", 1), B), 1, ONE, ONE)
    scene.receive(scene.letter("mallory", "b", _push(ONE), frame_bytes=64))
    assert not any(isinstance(effect, Mix) for effect in scene.mix_all("b"))
    scene.receive(scene.letter("mallory", "b", Receipts((promise,))))
    # It has nothing, and the next audit says so.
    assert any(isinstance(effect, Mix) for effect in scene.mix_all("b"))
    scene.wait(1.0)
    scene.wake("b")
    assert scene.peers["b"].weight == 2 * ONE
    found = {row.peer: row.lacking for row in verdict_of(scene).rows}
    assert found["mallory"] == ONE and not verdict_of(scene).is_sound


def test_for_audits_a_share_that_was_promised_is_let_in_once() -> None:
    scene = audited("a", "b")
    scene.introduce("c", "b")
    scene.receive(scene.letter("c", "b", Receipts((signed_promise(Link(C, B), 1, 9, 9),))))
    for seq in (1, 2):
        push = Push(seq=seq, escrow=9, size_bytes=64, epoch=0, round=0, note=0, step=0)
        scene.receive(scene.letter("c", "b", push, frame_bytes=64))
        assert any(isinstance(each, Mix) for each in scene.mix_all("b")) is (seq == 1)


def test_for_audits_what_goes_back_is_signed_at_once_with_what_was_owed() -> None:
    scene = audited("a", "b")
    push_and_mix(scene, "a", "b", ONE // 4)
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    scene.refuse_all("b")
    scene.deliver()
    receipt = book_of(scene.peers["a"]).receipts[Link(A, B)]
    assert (receipt.accepted, receipt.returned) == (ONE // 4, ONE // 4)
    assert scene.peers["a"].weight == ONE - ONE // 4
    scene.wait(1.0)
    assert not scene.sent(scene.wake("b"), Receipts)


@pytest.mark.parametrize("first", [False, True])
def test_for_audits_who_asks_gets_a_receipt_of_all(first: bool) -> None:
    scene = audited("a", "b")
    if first:
        push_and_mix(scene, "a", "b", ONE // 8)
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    scene.mix_all("b")
    scene.deliver(lose=(Ack,))
    scene.wait(1.0)
    assert scene.sent(scene.wake("a"), Query)
    scene.deliver()
    receipt = book_of(scene.peers["a"]).receipts[Link(A, B)]
    assert receipt.accepted == receipt.decided == ONE // 4 + first * ONE // 8
    assert not scene.peers["a"].account.outstanding
    scene.wait(1.0)
    assert not scene.sent(scene.wake("b"), Receipts)


def test_for_audits_who_leaves_signs_what_it_owes() -> None:
    scene = audited("a", "b")
    push_and_mix(scene, "a", "b", ONE // 4)
    effects = scene.peers["b"].leave(scene.now)
    owed, promised = scene.sent(effects, Receipts)
    assert [each.accepted for each in owed.statements] == [ONE // 4]
    assert [each.link for each in promised.statements] == [Link(B, A)]


def test_who_asks_before_it_has_promised_tells_nothing() -> None:
    scene = scene_of("a", "b", wide=True)
    scene.push("a", "b", ONE // 4)
    receipts = scene.peers["a"].receipts
    assert receipts is not None
    scene.mail.clear()
    receipts.sending("b", 1, Query(1))
    receipts.sending("c", 1, Query(1))
    assert not [each for each in scene.step("a") if isinstance(each, Receipts)]
