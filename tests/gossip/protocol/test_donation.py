"""Many newcomers at once: every copy makes another donor, and no two models are ever blended."""

from dataclasses import replace
from functools import partial
from math import ceil, log2

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Effect, Mix, Record, Send, Snapshot
from rumor.gossip.effects.events import Event, Joined, ShareRefused
from rumor.gossip.effects.ledger import Kind
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.join import NEWCOMERS_MAX
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import (
    Ack,
    Ask,
    Chunk,
    Grant,
    Hello,
    Leave,
    Member,
    Offer,
    Phase,
    Push,
    Refer,
)

from ..scene import SMALL, WIDE, Scene, a_push, an_offer, member, of

PATIENT = replace(WIDE, stall_s=1000.0, query_s_max=1000.0, query_s_min=1000.0)
"""Nobody asks a second time unless it is told to."""


def gathered(
    count: int, config: ProtocolConfig = PATIENT, donors: int = 1, host: bytes = b""
) -> Scene:
    """Founders a.., and newcomers n00.. that have asked a for a copy."""
    scene = Scene(config)
    scene.founded(*"abcd"[:donors], host=host)
    for index in range(count):
        scene.enter(f"n{index:02}", host=host)
        scene.join(f"n{index:02}", "a")
    for _ in range(2):
        scene.deliver(Hello)
        scene.wait(0.2)
        for index in range(count):
            scene.wake(f"n{index:02}")
    scene.deliver(Hello, Ask)
    return scene


def joined(scene: Scene) -> list[str]:
    return [id for id, peer in scene.peers.items() if peer.phase is Phase.TRAINING]


def generation(scene: Scene) -> list[Effect | Event]:
    """The time of one copy: at one turn it sets out, and at the next one it is mixed."""
    effects: list[Effect | Event] = []
    for _ in range(2):
        for id, peer in scene.peers.items():
            effects += scene.step(id, trained=peer.phase is Phase.TRAINING)
        scene.deliver()
    return effects


def copies(effects: list[Effect | Event]) -> list[str]:
    """For whom copies set out."""
    envelopes = [effect.envelope for effect in effects if isinstance(effect, Send)]
    bodies = [(e.destination, e.body) for e in envelopes]
    return [to for to, body in bodies if isinstance(body, Offer) and body.form.copy]


def units(scene: Scene) -> int:
    """All that there is, in hands and in escrow."""
    accounts = [peer.account for peer in scene.peers.values()]
    escrow = [open_one.escrow for account in accounts for open_one in account.outstanding.values()]
    return sum(account.weight for account in accounts) + sum(escrow)


@pytest.mark.parametrize("count", [1, 3, 7, 15, 31])
def test_many_newcomers_wait_for_a_logarithm_of_their_number(count: int) -> None:
    scene, effects, generations = gathered(count), list[Effect | Event](), 0
    while len(joined(scene)) < 1 + count:
        effects += generation(scene)
        generations += 1
        assert generations <= ceil(log2(1 + count)), "as a binomial tree"
    assert sorted(copies(effects)) == [f"n{index:02}" for index in range(count)], "one copy each"
    assert units(scene) == ONE


def test_every_copy_is_of_one_donor_alone() -> None:
    scene, effects = gathered(9), list[Effect | Event]()
    for _ in range(4):
        effects += generation(scene)
    mixes = of(effects, Mix)
    assert [mix.fraction for mix in mixes] == [1.0] * 9
    donors = {e.donor for e in effects if isinstance(e, Joined)}
    assert len(donors) > 2, "those who have just joined give, too"


def test_small_copies_are_given_as_fast_as_credit_allows() -> None:
    scene = gathered(4, replace(PATIENT, inline_bytes_max=SMALL.inline_bytes_max))
    assert len(scene.sent(scene.step("a"), Push)) == 2
    scene.deliver()
    for _ in range(2):
        generation(scene)
    assert len(joined(scene)) == 5


def test_a_donor_gives_one_large_copy_at_a_time() -> None:
    scene = gathered(3)
    assert len(copies(scene.step("a"))) == 1
    assert copies(scene.step("a")) == []
    scene.deliver()
    assert copies(scene.step("a")) == [], "it has come, and is not mixed yet"


def test_while_a_large_copy_is_on_its_way_only_what_is_awaited_is_pushed() -> None:
    scene, found = gathered(1, donors=2), list[tuple[bool, bool, str | None]]()

    def look(context: RuleContext) -> None:
        awaited = context.can_push("b", awaited=True)
        found.append((context.can_push("b"), awaited, context.draw(["b"])))

    assert copies(scene.act("a", look)) == ["n00"]
    scene.deliver()
    scene.act("a", look)
    scene.step("n00", trained=False)
    scene.deliver()
    scene.act("a", look)
    assert found == [(False, True, None), (False, True, None), (True, True, "b")]


@pytest.mark.parametrize("newcomers", [1, 2])
def test_a_newcomer_that_answers_no_more_holds_up_no_push_and_no_other(newcomers: int) -> None:
    scene, found = gathered(newcomers, WIDE, donors=2), list[bool]()
    assert copies(scene.act("a", partial(_note, found))) == ["n00"]
    scene.deliver(Offer, Grant, Chunk)  # all of it has come, and n00 takes no step
    for _ in range(4):
        scene.wait(1.0)
        scene.wake("a")
        scene.deliver(Hello)  # nobody is considered dead, and questions are lost
    assert copies(scene.act("a", partial(_note, found))) == ["n01"][: newcomers - 1]
    assert found == [False, newcomers == 1], "the next copy has the link"


def test_a_small_copy_or_one_that_is_read_here_holds_up_no_push() -> None:
    small = replace(PATIENT, inline_bytes_max=SMALL.inline_bytes_max)
    for scene in (gathered(1, small, 2), gathered(1, donors=2, host=b"the-same-machine")):
        found = list[bool]()
        sent = scene.act("a", partial(_note, found))
        assert any(isinstance(effect, Send) for effect in sent) and found == [True]


def _note(found: list[bool], context: RuleContext) -> None:
    found.append(context.can_push("b"))


def test_newcomers_on_this_machine_read_one_copy_all_at_once() -> None:
    scene = gathered(5, host=b"the-same-machine")
    effects = scene.step("a")
    assert len(copies(effects)) == 5, "which takes no credit"
    assert sum(isinstance(effect, Snapshot) for effect in effects) == 1
    scene.deliver()
    for id in copies(effects):
        scene.attached(id, ShareId("a", 1, 1), usable=True)
    effects = generation(scene)
    assert len(joined(scene)) == 6 and not scene.sent(effects, Refer)
    assert units(scene) == ONE


def test_a_donor_without_memory_lets_newcomers_wait() -> None:
    scene = gathered(2, host=b"the-same-machine")
    scene.fill("a")
    assert copies(scene.step("a")) == []
    scene.fill("a", is_full=False)
    assert len(copies(scene.step("a"))) == 2


def given_to_first() -> tuple[Scene, str]:
    """Newcomers n00.. have asked a, which has sent a copy to one of them, who will mix it next."""
    scene = gathered(5)
    (first,) = copies(scene.step("a"))
    scene.deliver()
    return scene, first


def test_half_of_those_who_wait_are_referred_to_one_that_has_joined() -> None:
    scene, first = given_to_first()
    scene.step(first, trained=False)
    scene.deliver(Ack, Hello)
    referred = {m.destination: m.body for m in scene.mail if isinstance(m.body, Refer)}
    assert len(referred) == 2 and first not in referred
    assert all(
        [m.id for m in body.donors] == [first]
        for body in referred.values()
        if isinstance(body, Refer)
    )
    scene.deliver(Refer)
    asks = [(m.source, m.destination) for m in scene.mail if isinstance(m.body, Ask)]
    assert sorted(asks) == sorted((newcomer, first) for newcomer in referred)


def test_those_who_wait_are_referred_though_the_donor_takes_a_turn_in_between() -> None:
    """The word that a copy was accepted may be there before the word that its owner has joined."""
    scene, first = given_to_first()
    scene.step(first, trained=False)
    scene.deliver(Ack)
    assert len(copies(scene.step("a"))) == 1
    scene.deliver(Hello)
    assert len([m for m in scene.mail if isinstance(m.body, Refer)]) >= 1


def test_one_that_has_the_copy_is_referred_to_once() -> None:
    scene, first = given_to_first()
    scene.step(first, trained=False)
    scene.deliver(Ack, Hello)
    scene.mail = type(scene.mail)(m for m in scene.mail if not isinstance(m.body, Refer))
    scene.wait(1.0)
    scene.wake(first)
    scene.deliver(Hello)
    assert not [m for m in scene.mail if isinstance(m.body, Refer)]


def asked_by(scene: Scene, *newcomers: Member) -> None:
    """Let these say hello to a, and ask it for a copy."""
    for newcomer in newcomers:
        scene.says("a", newcomer)
        scene.receive(scene.letter(newcomer.id, "a", Ask()))


def alone() -> Scene:
    scene = Scene(PATIENT)
    scene.founded("a")
    return scene


def test_who_only_dials_out_is_not_referred_to_another_who_only_dials_out() -> None:
    for outward, referred in ((True, []), (False, ["e"])):
        scene = alone()
        asked_by(scene, *(member(id, Phase.JOINING, addresses=()) for id in "cde"))
        assert copies(scene.step("a")) == ["c"]
        effects = scene.says("a", member("c", heartbeat=2, addresses=() if outward else ("c",)))
        envelopes = [e.envelope for e in effects if isinstance(e, Send)]
        assert [e.destination for e in envelopes if isinstance(e.body, Refer)] == referred


def test_one_that_has_joined_elsewhere_or_gone_is_given_nothing() -> None:
    scene = alone()
    asked_by(scene, *(member(id, Phase.JOINING) for id in "cde"))
    scene.says("a", member("c", heartbeat=2))
    scene.receive(scene.letter("d", "a", Leave(True)))
    assert copies(scene.step("a")) == ["e"]


def test_a_donor_passes_on_to_the_next_where_a_newcomer_falls_away_in_the_middle() -> None:
    scene = alone()
    asked_by(scene, member("c", Phase.JOINING), member("d", Phase.JOINING))
    assert copies(scene.step("a")) == ["c"]
    scene.receive(scene.letter("c", "a", Leave(True)))
    assert copies(scene.step("a")) == ["d"]
    assert scene.peers["a"].account.outstanding.keys() == {("d", 1)}


def test_where_nobody_waits_nobody_is_referred() -> None:
    scene = alone()
    asked_by(scene, member("c", Phase.JOINING))
    scene.step("a")
    assert not scene.sent(scene.says("a", member("c", heartbeat=2)), Refer)


def newcomer(config: ProtocolConfig = WIDE, *donors: str) -> Scene:
    """A newcomer n that knows donors and has asked the first of them."""
    scene = Scene(config)
    scene.enter("n")
    scene.join("n", "b")
    effects = scene.says("n", member("b"))
    assert scene.sent(effects, Ask)
    for donor in donors:
        scene.says("n", member(donor))
    scene.mail.clear()
    return scene


def passes(scene: Scene, seconds: float) -> list[Effect | Event]:
    effects: list[Effect | Event] = []
    for _ in range(round(seconds / 0.2)):
        scene.wait(0.2)
        effects += scene.wake("n")
    return effects


def asks(effects: list[Effect | Event]) -> list[str]:
    envelopes = [effect.envelope for effect in effects if isinstance(effect, Send)]
    return [e.destination for e in envelopes if isinstance(e.body, Ask)]


COPY_BYTES = 128
OFFER = an_offer()


def offer_of(scene: Scene, donor: str, seq: int = 1) -> list[Effect | Event]:
    """Let a donor offer the newcomer a copy, in frames."""
    form = OFFER.form._replace(copy=True)
    size = form.size_bytes(scene.peers["n"]._state.schema, 0)
    offer = replace(OFFER, seq=seq, form=form, size_bytes=size)
    return scene.receive(scene.letter(donor, "n", offer))


def frames_of(scene: Scene, donor: str, count: int, seq: int = 1, start: int = 0) -> None:
    for index in range(start, count):
        chunk = Chunk(seq, index, 16 * index)
        scene.receive(scene.letter(donor, "n", chunk, frame_bytes=16))


def test_a_referred_newcomer_asks_the_new_donor_at_once() -> None:
    scene = newcomer()
    refer = Refer((member("c"),))
    effects = scene.receive(scene.letter("b", "n", refer))
    assert asks(effects) == ["c"] and scene.sent(effects, Hello)[0].reply
    assert set(asks(passes(scene, 5.0))) <= {"c"}


def test_a_referral_of_somebody_who_was_not_asked_is_only_news() -> None:
    scene = newcomer(WIDE, "c")
    effects = scene.receive(scene.letter("c", "n", Refer((member("d"),))))
    assert asks(effects) == []


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.QUIET, Phase.LEAVING])
def test_a_referral_to_one_that_has_nothing_to_give_is_not_followed(phase: Phase) -> None:
    scene = newcomer()
    assert asks(scene.receive(scene.letter("b", "n", Refer((member("c", phase),))))) == []
    assert asks(scene.receive(scene.letter("b", "n", Refer(())))) == []


def test_a_referral_that_comes_after_the_copy_has_set_out_is_not_followed() -> None:
    scene = newcomer()
    offer_of(scene, "b")
    effects = scene.receive(scene.letter("b", "n", Refer((member("c"),))))
    assert asks(effects) == []


def test_a_member_follows_no_referral() -> None:
    scene = alone()
    scene.says("a", member("b"))
    refer = Refer((member("c"),))
    assert asks(scene.receive(scene.letter("b", "a", refer))) == []


def test_a_referred_newcomer_whose_new_donor_dies_asks_another() -> None:
    scene = newcomer()
    scene.receive(scene.letter("b", "n", Refer((member("c"),))))
    # Nothing is heard of c.
    asked: list[str] = []
    for beat in range(20):
        scene.says("n", member("b", heartbeat=2 + beat))
        asked += asks(passes(scene, 1.0))
    assert asked[-1] == "b"


def test_a_referred_newcomer_whose_new_donor_leaves_asks_another_at_once() -> None:
    scene = newcomer()
    scene.receive(scene.letter("b", "n", Refer((member("c"),))))
    scene.receive(scene.letter("c", "n", Leave(False)))
    assert asks(passes(scene, 0.4)) == ["b"]


def test_a_newcomer_repeats_its_question_until_the_copy_sets_out() -> None:
    """The first one may be lost; and the second one gets it no second copy."""
    scene = newcomer()
    asked = asks(passes(scene, 5.0))
    assert len(asked) >= 4 and set(asked) == {"b"}
    offer_of(scene, "b")
    assert asks(passes(scene, 5.0)) == []
    scene = alone()
    asked_by(scene, member("c", Phase.JOINING))
    for _ in range(5):
        scene.receive(scene.letter("c", "a", Ask()))
    assert copies(scene.step("a")) == ["c"]
    scene.says("a", member("c", heartbeat=2))
    scene.receive(scene.letter("c", "a", Ack(1, 0)))
    assert copies(scene.step("a")) == []


def test_while_a_copy_is_on_its_way_no_other_is_let_in() -> None:
    scene = newcomer(WIDE, "c")
    offer_of(scene, "b")
    refused = offer_of(scene, "c")
    assert ShareRefused("c", "another copy is on its way") in refused
    assert scene.sent(offer_of(scene, "b"), Grant), "its own offer may come twice"


def test_a_donor_that_dies_in_mid_transfer_is_replaced_by_another_and_nothing_is_blended() -> None:
    scene = newcomer(WIDE, "c")
    offer_of(scene, "b")
    frames_of(scene, "b", 2)
    asked: list[str] = []
    for beat in range(10):
        scene.says("n", member("c", heartbeat=2 + beat))
        asked += asks(passes(scene, 2.0))
    assert asked[0] == "c", "one that broke off is asked again only where there is nobody else"
    offer_of(scene, "c")
    late = scene.receive(scene.letter("b", "n", Chunk(1, 2, 32), frame_bytes=16))
    assert late == [] or not scene.sent(late, Grant), "the frames of the first copy are dropped"
    size = offer_size(scene)
    frames_of(scene, "c", size // 16)
    effects = scene.step("n", trained=False)
    assert [(e.share.sender, e.fraction) for e in effects if isinstance(e, Mix)] == [("c", 1.0)]
    assert Joined("c") in effects
    assert scene.peers["n"].account.decided["b", 1] == (1, 0)


def offer_size(scene: Scene) -> int:
    form = OFFER.form._replace(copy=True)
    return form.size_bytes(scene.peers["n"]._state.schema, 0)


def test_where_there_is_nobody_else_the_same_donor_is_asked_again() -> None:
    scene = newcomer()
    offer_of(scene, "b")
    frames_of(scene, "b", 1)
    asked: list[str] = []
    for beat in range(10):
        scene.says("n", member("b", heartbeat=2 + beat))
        asked += asks(passes(scene, 2.0))
    assert asked and set(asked) == {"b"}


def test_a_newcomer_whose_donor_came_back_in_a_later_life_takes_one_copy_only() -> None:
    scene = newcomer(WIDE, "c")
    offer_of(scene, "b")
    frames_of(scene, "b", 2)
    later = replace(member("b", Phase.SEEKING), incarnation=2)
    hello = Hello(members=(later,), rooted=True, reply=False)
    effects = scene.receive(scene.letter("b", "n", hello, incarnation=2))
    effects += passes(scene, 0.4)
    assert asks(effects) == ["c"], "what the earlier life began will never be whole"
    assert scene.peers["n"].staged == 0


def test_two_copies_that_come_at_once_are_not_blended() -> None:
    scene = newcomer(SMALL, "c")
    for donor in "bc":
        form = OFFER.form._replace(copy=True)
        push = a_push(size_bytes=offer_size(scene), form=form)
        scene.receive(scene.letter(donor, "n", push, frame_bytes=push.size_bytes))
    effects = scene.step("n", trained=False)
    mixes = of(effects, Mix)
    assert [(mix.share.sender, mix.fraction) for mix in mixes] == [("b", 1.0)]


def test_so_many_newcomers_are_given_a_copy_at_a_time() -> None:
    """On the same machine they need no credit: all read one copy."""
    scene = Scene(WIDE)
    host = b"the-same-machine"
    scene.founded("a", "b", host=host)
    for index in range(200):
        newcomer = replace(member(f"n{index}", phase=Phase.JOINING), host=host)
        scene.says("a", newcomer)
        scene.receive(scene.letter(newcomer.id, "a", Ask()))
    effects = scene.step("a")
    pushed = [e for e in effects if isinstance(e, Record) and e.entry.kind is Kind.PUSHED]
    assert len(pushed) == NEWCOMERS_MAX
    assert not of(scene.step("a"), Record)
    assert scene.peers["a"].weight >= ONE >> (NEWCOMERS_MAX + 1)
