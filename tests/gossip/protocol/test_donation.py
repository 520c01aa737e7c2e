"""Many newcomers join at once: each copy makes a new donor, and models are never blended."""

from collections import deque
from dataclasses import replace
from functools import partial
from math import ceil, log2

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Mix, Snapshot
from rumor.gossip.effects.events import Joined, ShareRefused
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.join import NEWCOMERS_MAX
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import Form
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
    Refer,
)
from rumor.sim.fuzz.vector import SCHEMA

from ..scene import SMALL, WIDE, Effects, Scene, an_offer, destinations, letters, member, only

PATIENT = replace(WIDE, stall_s=1000.0, query_s_max=1000.0, query_s_min=1000.0)
"""No newcomer repeats its request unless a donor refers it to another."""

SMALL_COPIES = replace(PATIENT, inline_bytes_max=SMALL.inline_bytes_max)
HERE = b"the-same-machine"
COPY_BYTES = Form(copy=True).size_bytes(SCHEMA, 0)


def waiting_newcomers(
    count: int, config: ProtocolConfig = PATIENT, donors: int = 1, host: bytes = b""
) -> Scene:
    """Founders a.., and newcomers n00.. that have asked a for a copy."""
    scene = Scene(config).founded(*"abcd"[:donors], host=host)
    newcomers = [f"n{index:02}" for index in range(count)]
    for id in newcomers:
        scene.enter(id, host=host)
        scene.join(id, "a")
    for _ in range(2):
        scene.deliver(Hello)
        scene.wait(0.2)
        for id in newcomers:
            scene.wake(id)
    scene.deliver(Hello, Ask)
    return scene


def joined(scene: Scene) -> list[str]:
    return [id for id, peer in scene.peers.items() if peer.phase is Phase.TRAINING]


def exchange_copies(scene: Scene) -> Effects:
    """Let one generation of copies be sent at one step and mixed at the next."""
    effects: Effects = []
    for _ in range(2):
        for id, peer in scene.peers.items():
            effects += scene.step(id, trained=peer.phase is Phase.TRAINING)
        scene.deliver()
    return effects


def copies(effects: Effects) -> list[str]:
    return [e.destination for e in letters(effects, Offer) if e.body.form.copy]


def total_weight(scene: Scene) -> int:
    """Return all weight, held and in escrow."""
    accounts = [peer.account for peer in scene.peers.values()]
    escrow = [entry.escrow for account in accounts for entry in account.outstanding.values()]
    return sum(account.weight for account in accounts) + sum(escrow)


@pytest.mark.parametrize("count", [1, 3, 7, 15, 31])
def test_the_wait_of_newcomers_grows_logarithmically_with_their_number(count: int) -> None:
    scene, effects, generations = waiting_newcomers(count), Effects(), 0
    while len(joined(scene)) < 1 + count:
        effects += exchange_copies(scene)
        generations += 1
        assert generations <= ceil(log2(1 + count)), "a binomial tree"
    assert sorted(copies(effects)) == [f"n{index:02}" for index in range(count)], "one copy each"
    assert total_weight(scene) == ONE
    assert [mix.fraction for mix in only(effects, Mix)] == [1.0] * count, "from a single donor"
    donors = {event.donor for event in only(effects, Joined)}
    assert len(donors) > 2 or count < 7, "new members are donors, too"


def test_a_donor_gives_one_large_copy_at_a_time() -> None:
    scene = waiting_newcomers(3)
    assert len(copies(scene.step("a"))) == 1
    assert copies(scene.step("a")) == []
    scene.deliver()
    assert copies(scene.step("a")) == [], "the copy has arrived, but is not mixed yet"


def test_only_awaited_shares_are_pushed_during_a_large_copy() -> None:
    scene, found = waiting_newcomers(1, donors=2), list[tuple[bool, bool, str | None]]()

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


def _record_can_push(found: list[bool], context: RuleContext) -> None:
    found.append(context.can_push("b"))


@pytest.mark.parametrize("newcomers", [1, 2])
def test_a_silent_newcomer_blocks_neither_pushes_nor_other_newcomers(
    newcomers: int,
) -> None:
    scene, found = waiting_newcomers(newcomers, WIDE, donors=2), list[bool]()
    assert copies(scene.act("a", partial(_record_can_push, found))) == ["n00"]
    scene.deliver(Offer, Grant, Chunk)  # the whole copy has arrived, but n00 takes no step
    for _ in range(4):
        scene.wake_for("a", 1.0)
        scene.deliver(Hello)  # no peer is considered dead, and queries are lost
    assert copies(scene.act("a", partial(_record_can_push, found))) == ["n01"][: newcomers - 1]
    assert found == [False, newcomers == 1], "the next copy has the link"


@pytest.mark.parametrize(("config", "host"), [(SMALL_COPIES, b""), (PATIENT, HERE)])
def test_a_small_or_shared_memory_copy_blocks_no_push(config: ProtocolConfig, host: bytes) -> None:
    scene, found = waiting_newcomers(1, config, 2, host), list[bool]()
    assert letters(scene.act("a", partial(_record_can_push, found))) and found == [True]


def test_newcomers_on_one_machine_read_one_copy_at_once() -> None:
    scene = waiting_newcomers(5, host=HERE)
    scene.fill("a")
    assert copies(scene.step("a")) == [], "without shared memory they wait"
    scene.fill("a", is_full=False)
    effects = scene.step("a")
    assert len(copies(effects)) == 5, "reading takes no credit"
    assert len(only(effects, Snapshot)) == 1
    scene.deliver()
    for id in copies(effects):
        scene.attached(id, ShareId("a", 1, 1), usable=True)
    effects = exchange_copies(scene)
    assert len(joined(scene)) == 6 and not scene.sent(effects, Refer)
    assert total_weight(scene) == ONE


def first_copied() -> tuple[Scene, str]:
    """Newcomers n00.. have asked a; one of them has received and mixed a copy."""
    scene = waiting_newcomers(5)
    (first,) = copies(scene.step("a"))
    scene.deliver()
    scene.step(first, trained=False)
    return scene, first


def test_half_of_the_waiting_newcomers_are_referred_once_to_a_new_member() -> None:
    scene, first = first_copied()
    scene.deliver(Ack, Hello)
    referred = {m.destination: m.body for m in scene.mail if isinstance(m.body, Refer)}
    assert len(referred) == 2 and first not in referred
    assert all([m.id for m in body.donors] == [first] for body in referred.values())
    scene.deliver(Refer)
    asks = [(m.source, m.destination) for m in scene.mail if isinstance(m.body, Ask)]
    assert sorted(asks) == sorted((newcomer, first) for newcomer in referred)
    scene.mail = deque()
    scene.wake_for(first, 1.0)
    scene.deliver(Hello)
    assert not [m for m in scene.mail if isinstance(m.body, Refer)]


def asked_by(*newcomers: Member) -> Scene:
    """A founder that *newcomers* have asked for a copy."""
    scene = Scene(PATIENT).founded("a")
    for newcomer in newcomers:
        scene.send_hello("a", newcomer)
        scene.tell(newcomer.id, "a", Ask())
    return scene


def joining(ids: str, addresses: tuple[str, ...] | None = None) -> list[Member]:
    return [member(id, Phase.JOINING, addresses=addresses) for id in ids]


@pytest.mark.parametrize(("addresses", "referred"), [((), []), (("c",), ["e"])])
def test_peers_that_only_dial_out_are_not_referred_to_one_another(
    addresses: tuple[str, ...], referred: list[str]
) -> None:
    scene = asked_by(*joining("cde", ()))
    assert copies(scene.step("a")) == ["c"]
    effects = scene.send_hello("a", member("c", heartbeat=2, addresses=addresses))
    assert destinations(effects, Refer) == referred


def test_a_newcomer_that_joined_elsewhere_or_left_gets_no_copy() -> None:
    scene = asked_by(*joining("cde"))
    scene.send_hello("a", member("c", heartbeat=2))
    scene.tell("d", "a", Leave(True))
    assert copies(scene.step("a")) == ["e"]
    scene.tell("e", "a", Leave(True))
    assert not scene.peers["a"].account.outstanding, (
        "a newcomer that disappears gets no copy either"
    )


def newcomer(config: ProtocolConfig = WIDE, *donors: str) -> Scene:
    """A newcomer n that knows *donors* and has asked b for a copy."""
    scene = Scene(config)
    scene.join("n", "b")
    assert destinations(scene.send_hello("n", member("b")), Ask) == ["b"]
    for donor in donors:
        scene.send_hello("n", member(donor))
    scene.mail.clear()
    return scene


def asks(scene: Scene, seconds: float) -> list[str]:
    return destinations(scene.wake_for("n", seconds, 0.2), Ask)


def asks_while(scene: Scene, alive: str, times: int, seconds: float) -> list[str]:
    requests: list[str] = []
    for heartbeat in range(times):
        scene.send_hello("n", member(alive, heartbeat=2 + heartbeat))
        requests += asks(scene, seconds)
    return requests


def refers(scene: Scene, *donors: Member, by: str = "b") -> list[str]:
    """Return the donors that the newcomer asks when it is referred to *donors*."""
    return destinations(scene.tell(by, "n", Refer(donors)), Ask)


def offers(scene: Scene, donor: str, frames: int = 0) -> Effects:
    """Let a donor offer the newcomer a copy, and send this many frames of it."""
    body = an_offer(form=Form(copy=True), size_bytes=COPY_BYTES)
    effects = scene.tell(donor, "n", body)
    for index in range(frames):
        chunk = Chunk(1, index, 16 * index)
        effects += scene.tell(donor, "n", chunk, frame_bytes=16)
    return effects


def test_a_referred_newcomer_asks_the_new_donor_at_once() -> None:
    scene = newcomer()
    effects = scene.tell("b", "n", Refer((member("c"),)))
    assert destinations(effects, Ask) == ["c"] and scene.sent(effects, Hello)[0].reply
    assert set(asks(scene, 5.0)) <= {"c"}
    # c does not answer: the newcomer asks another donor.
    assert asks_while(scene, "b", 20, 1.0)[-1] == "b"


def test_a_useless_referral_is_not_followed() -> None:
    for phase in (Phase.JOINING, Phase.QUIET, Phase.LEAVING):
        assert refers(newcomer(), member("c", phase)) == []
    assert refers(newcomer()) == []
    assert refers(newcomer(WIDE, "c"), member("d"), by="c") == [], "n did not ask c"
    scene = newcomer()
    offers(scene, "b")
    assert refers(scene, member("c")) == [], "the copy has been sent"
    scene = asked_by()
    scene.send_hello("a", member("b"))
    assert not destinations(scene.tell("b", "a", Refer((member("c"),))), Ask), "a member"


def test_a_newcomer_repeats_its_request_until_the_copy_is_sent() -> None:
    """The first request may be lost; a second request brings no second copy."""
    scene = newcomer()
    requests = asks(scene, 5.0)
    assert len(requests) >= 4 and set(requests) == {"b"}
    offers(scene, "b")
    assert asks(scene, 5.0) == []
    scene = asked_by(*joining("c"))
    for _ in range(5):
        scene.receive(scene.letter("c", "a", Ask()))
    assert copies(scene.step("a")) == ["c"]
    scene.send_hello("a", member("c", heartbeat=2))
    scene.receive(scene.letter("c", "a", Ack(1, 0)))
    assert copies(scene.step("a")) == []


def test_no_other_copy_is_accepted_while_one_is_in_flight() -> None:
    scene = newcomer(WIDE, "c")
    offers(scene, "b")
    assert ShareRefused("c", "another copy is on its way") in offers(scene, "c")
    assert scene.sent(offers(scene, "b"), Grant), "the donor may repeat its offer"


def test_a_donor_that_dies_in_mid_transfer_is_replaced_without_blending_models() -> None:
    scene = newcomer(WIDE, "c")
    offers(scene, "b", frames=2)
    requests = asks_while(scene, "c", 10, 2.0)
    assert requests[0] == "c", "a failed donor is asked again only if there is no other"
    offers(scene, "c")
    late = scene.tell("b", "n", Chunk(1, 2, 32), frame_bytes=16)
    assert not scene.sent(late, Grant), "the frames of the first copy are dropped"
    offers(scene, "c", frames=COPY_BYTES // 16)
    effects = scene.step("n", trained=False)
    assert [(mix.share.sender, mix.fraction) for mix in only(effects, Mix)] == [("c", 1.0)]
    assert Joined("c") in effects
    assert scene.peers["n"].account.decided["b", 1] == (1, 0)


def test_the_number_of_simultaneous_copies_is_limited() -> None:
    """Newcomers on the same machine need no credit: all read one copy."""
    scene = Scene(WIDE).founded(host=HERE)
    for index in range(200):
        scene.send_hello("a", member(f"n{index}", Phase.JOINING, host=HERE))
        scene.tell(f"n{index}", "a", Ask())
    records = only(scene.step("a"), Entry)
    assert len([r for r in records if r.kind is Kind.PUSHED]) == NEWCOMERS_MAX
    assert not only(scene.step("a"), Entry)
    assert scene.peers["a"].state.weight >= ONE >> (NEWCOMERS_MAX + 1)
