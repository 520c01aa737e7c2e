"""Messages of others' models, others' swarms and others' lives have no effect."""

from dataclasses import replace
from functools import partial

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Effect, Meet
from rumor.gossip.effects.events import Event, PeerMet, PeerRefused, SwarmGivenUp
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import stream
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import (
    Ack,
    Ask,
    Body,
    Describe,
    Envelope,
    Hello,
    Leave,
    Phase,
    Query,
)
from rumor.gossip.wire.schema import Schema, TensorSpec
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import Peers
from rumor.sim.fuzz.swarm import FuzzSwarm
from rumor.sim.fuzz.vector import SCHEMA

from ..scene import ANCHOR, OTHER_ANCHOR, Scene, an_offer, member

OFFER = an_offer(frame_bytes=64)
OTHER_SCHEMA = Schema((TensorSpec("x", (5,), "float64"),))


def alone() -> Scene:
    """A peer a that founded alone, and has accepted nothing yet."""
    scene = Scene()
    scene.enter("a")
    scene.join("a")
    return scene


def hello(*, rooted: bool, reply: bool = True) -> Hello:
    b = member("b")
    return Hello(members=(b,), rooted=rooted, reply=reply)


def refusals(effects: list[Effect | Event]) -> list[str]:
    return [effect.reason for effect in effects if isinstance(effect, PeerRefused)]


def rooted() -> Scene:
    """A peer a that has accepted a share of b."""
    scene = Scene()
    scene.founded("a", "b")
    scene.push("b", "a", 5)
    scene.deliver()
    scene.mix_all("a")
    scene.deliver()
    return scene


def test_a_message_in_ones_own_name_is_an_error() -> None:
    scene = alone()
    with pytest.raises(RemoteProtocolError, match="own name"):
        scene.receive(scene.letter("a", "a", Ask()))


def test_who_writes_to_an_earlier_life_learns_who_lives_here_now() -> None:
    scene = Scene()
    scene.enter("a", incarnation=2)
    scene.join("a")
    (answer,) = scene.sent(scene.receive(scene.letter("b", "a", Query(1))), Hello)
    assert answer.members[0].incarnation == 2
    assert not scene.peers["a"].account.decided


def test_a_peer_of_another_model_is_told_this_ones() -> None:
    scene = alone()
    letter = scene.letter("b", "a", hello(rooted=True), schema=OTHER_SCHEMA.hash)
    assert scene.sent(scene.receive(letter), object) == [Describe(SCHEMA)]
    assert [member.id for member in scene.peers["a"].live()] == ["a"]


def test_the_first_difference_of_two_models_is_named() -> None:
    scene = alone()
    letter = scene.letter("b", "a", Describe(OTHER_SCHEMA), schema=OTHER_SCHEMA.hash)
    (reason,) = refusals(scene.receive(letter))
    assert reason == (
        "it trains another model: tensor 0 is x (4,) float64 here and x (5,) float64 there"
    )


def test_a_description_of_the_same_model_says_nothing() -> None:
    scene = alone()
    assert scene.receive(scene.letter("b", "a", Describe(SCHEMA))) == []


def test_a_young_founder_gives_its_swarm_up_for_one_that_has_taken_root() -> None:
    scene = alone()
    effects = scene.receive(scene.letter("b", "a", hello(rooted=True), swarm=OTHER_ANCHOR))
    a = scene.peers["a"]
    assert SwarmGivenUp() in effects
    assert (a.account.weight, a.account.burned, a.swarm) == (0, ONE, OTHER_ANCHOR)
    assert a.phase is Phase.JOINING


def test_of_two_young_swarms_the_one_with_the_smaller_hash_stays() -> None:
    for theirs, gives_up in ((b"\0" * 16, True), (b"\xff" * 16, False)):
        scene = alone()
        effects = scene.receive(scene.letter("b", "a", hello(rooted=False), swarm=theirs))
        assert (SwarmGivenUp() in effects) is gives_up


def test_a_newcomer_that_holds_nothing_burns_nothing() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b")
    scene.receive(scene.letter("b", "a", hello(rooted=False), swarm=b"\xff" * 16))
    effects = scene.receive(scene.letter("c", "a", hello(rooted=True)))
    assert SwarmGivenUp() in effects and scene.peers["a"].account.burned == 0


def test_a_peer_that_gave_its_swarm_up_founds_no_other_however_often_it_is_told_to_join() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", founders=2)
    scene.introduce("c", "a")
    scene.wait(1.0)
    scene.wake("a")
    assert scene.peers["a"].account.founded == ONE
    scene.receive(scene.letter("b", "a", hello(rooted=True), swarm=OTHER_ANCHOR))
    for _ in range(3):
        scene.wait(1.0)
        scene.join("a", founders=2)
    assert scene.peers["a"].account.founded == scene.peers["a"].account.burned == ONE


def test_two_swarms_that_have_taken_root_do_not_merge() -> None:
    scene = rooted()
    letter = scene.letter("c", "a", hello(rooted=True), swarm=OTHER_ANCHOR)
    effects = scene.receive(letter)
    assert refusals(effects) == ["it belongs to another swarm"]
    assert len(scene.sent(effects, Hello)) == 1
    letter = replace(letter, body=hello(rooted=False, reply=False))
    assert scene.receive(letter) == []


def test_a_stranger_of_another_swarm_is_not_listened_to_but_about_what_was_pushed() -> None:
    scene = rooted()
    scene.introduce("c", "a")
    assert scene.receive(scene.letter("c", "a", Ask(), swarm=OTHER_ANCHOR)) == []
    effects = scene.receive(scene.letter("c", "a", Query(1), swarm=OTHER_ANCHOR))
    assert scene.sent(effects, Ack) == [Ack(1, 0)]


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]
)
def test_peers_that_found_apart_and_meet_end_in_one_swarm_or_in_two_with_roots(seed: int) -> None:
    anchors = {"a": ANCHOR, "b": OTHER_ANCHOR}
    peers = Peers(
        rule=lambda peer: GoSGD(0.5),
        config=ProtocolConfig(found_s=0.25, found_alone_s=0.5),
        anchor=lambda peer: anchors.get(peer, b"the-first-anchor"),
    )
    network = NetworkConfig(latency_s=0.02, jitter=1.0, loss=0.1, duplicates=0.15, reorder=0.3)
    swarm = FuzzSwarm(seed, peers, tuple("abcde"), 0, network)
    # Nobody listens there yet.
    swarm.launch("a", seeds=("d",))
    swarm.launch("b", seeds=("e",))
    rng = stream(seed, "peers", "starts")
    for index, peer in enumerate(("c", "d", "e")):
        start = partial(swarm.launch, peer, seeds=("a", "b"))
        swarm.fleet.at(2.0 + 3.0 * index * float(rng.random()), start)
    swarm.run(45.0)
    swarms: dict[bytes, int] = {}
    for host in swarm.running():
        assert host.protocol.phase is Phase.TRAINING
        swarms[host.protocol.swarm] = swarms.get(host.protocol.swarm, 0) + 1
    assert len(swarms) == 1 or min(swarms.values()) > 1


@pytest.mark.parametrize("body", [OFFER, Query(1)])
def test_who_never_said_hello_leaves_no_trace_in_the_ledger(body: Body) -> None:
    scene = rooted()
    before = dict(scene.peers["a"].account.decided)
    (answer,) = scene.sent(scene.receive(scene.letter("c", "a", body)), object)
    assert isinstance(answer, Hello) and answer.reply
    assert scene.peers["a"].account.decided == before
    scene.introduce("c", "a")
    scene.receive(scene.letter("c", "a", Query(1)))
    assert scene.peers["a"].account.decided[("c", 1)] == (1, 0)


def test_a_share_of_another_swarms_stranger_leaves_none_either() -> None:
    scene = rooted()
    before = dict(scene.peers["a"].account.decided)
    effects = scene.receive(scene.letter("c", "a", OFFER, swarm=OTHER_ANCHOR))
    assert scene.sent(effects, Ack) == []
    assert scene.peers["a"].account.decided == before


def test_an_envelope_says_which_swarm_it_is_of() -> None:
    scene = alone()
    (letter,) = [
        effect.envelope
        for effect in scene.receive(scene.letter("b", "a", hello(rooted=False), swarm=b""))
        if hasattr(effect, "envelope")
    ]
    assert isinstance(letter, Envelope) and letter.swarm == ANCHOR


FAR = 10**9


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("body", [Ask(), OFFER, Query(1), Ack(1, 0)])
def test_no_word_of_a_life_from_far_ahead_is_taken_in(body: Body, known: bool) -> None:
    scene = rooted()
    if known:
        scene.push("a", "b", 5)
    before = dict(scene.peers["a"].account.decided), dict(scene.peers["a"].account.outstanding)
    assert scene.receive(scene.letter("b", "a", body, incarnation=FAR)) == []
    account = scene.peers["a"].account
    assert (account.decided, account.outstanding) == before


def test_one_whose_clock_is_far_ahead_is_told_of_by_name() -> None:
    scene = alone()
    effects = scene.receive(scene.letter("b", "a", hello(rooted=False), incarnation=FAR))
    assert effects == [
        PeerRefused("b", "its clock is far ahead of this peer's: set both by the same time")
    ]
    assert scene.peers["a"].known() == ()


def test_a_swarm_is_not_given_up_for_a_life_from_far_ahead() -> None:
    scene = alone()
    letter = scene.letter("b", "a", hello(rooted=True), swarm=OTHER_ANCHOR, incarnation=FAR)
    assert SwarmGivenUp() not in scene.receive(letter)
    assert scene.peers["a"].swarm == ANCHOR


def test_a_life_a_little_ahead_is_welcome() -> None:
    scene = alone()
    later = member("b", incarnation=10**6, addresses=())
    body = Hello(members=(later,), rooted=False, reply=False)
    effects = scene.receive(scene.letter("b", "a", body, incarnation=10**6))
    assert Meet("b", ()) in effects and PeerMet("b") in effects


def test_a_word_of_a_later_life_is_looked_at_as_closely_as_a_strangers() -> None:
    """One that has only been known in an earlier life has not said hello in this one."""
    scene = rooted()
    effects = scene.receive(scene.letter("b", "a", Query(1), incarnation=FAR, swarm=OTHER_ANCHOR))
    assert effects == []


def test_one_that_gives_its_swarm_up_forgets_who_was_in_it() -> None:
    scene = alone()
    scene.introduce("c", "a")
    scene.receive(scene.letter("b", "a", hello(rooted=True), swarm=OTHER_ANCHOR))
    a = scene.peers["a"]
    assert [m.id for m in a.known()] == ["b"] and a.swarm == OTHER_ANCHOR
    assert a.clock.rows() == {"a": 0}


def test_a_newcomer_between_two_swarms_with_roots_keeps_to_the_first() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b", "c")
    scene.receive(scene.letter("b", "a", hello(rooted=True)))
    c = replace(scene.peers["a"].known()[0], id="c", addresses=("c",))
    other = Hello(members=(c,), rooted=True, reply=False)
    for _ in range(3):
        effects = scene.receive(scene.letter("c", "a", other, swarm=OTHER_ANCHOR))
        assert SwarmGivenUp() not in effects
    assert scene.peers["a"].swarm == ANCHOR
    # Once nobody of the first one is left, it may belong to the other.
    scene.receive(scene.letter("b", "a", Leave(True)))
    effects = scene.receive(scene.letter("c", "a", other, swarm=OTHER_ANCHOR))
    assert SwarmGivenUp() in effects and scene.peers["a"].swarm == OTHER_ANCHOR


def test_what_was_stranded_in_a_swarm_that_was_given_up_is_not_handed_on_in_the_other() -> None:
    scene = alone()
    scene.introduce("c", "a")
    scene.push("a", "c", ONE // 2)
    for _ in range(40):
        scene.wait(1.0)
        scene.wake("a")
    a = scene.peers["a"]
    assert a.account.outstanding["c", 1].stranded
    effects = scene.receive(scene.letter("b", "a", hello(rooted=True), swarm=OTHER_ANCHOR))
    assert SwarmGivenUp() in effects and a.account.weight == 0
    scene.receive(scene.letter("c", "a", Ack(1, 0)))
    assert a.account.weight == 0 and not a.account.outstanding
    assert a.account.burned == a.account.founded == ONE


def test_a_founder_does_not_yield_to_the_mere_name_of_a_swarm() -> None:
    """A newcomer may still speak for a swarm whose last member has died."""
    scene = alone()
    for phase, gives_up in ((Phase.SEEKING, False), (Phase.JOINING, False), (Phase.TRAINING, True)):
        entry = member("b", phase)
        body = Hello(members=(entry,), rooted=False, reply=False)
        effects = scene.receive(scene.letter("b", "a", body, swarm=b"\0" * 16))
        assert (SwarmGivenUp() in effects) is gives_up


@pytest.mark.parametrize(
    ("theirs", "phase", "gives_up"),
    [
        (b"\xff" * 16, Phase.TRAINING, True),
        (b"\0" * 16, Phase.TRAINING, True),
        (b"\xff" * 16, Phase.SEEKING, False),
        (b"\0" * 16, Phase.SEEKING, True),
    ],
)
def test_one_that_holds_nothing_goes_to_whoever_holds_something(
    theirs: bytes, phase: Phase, gives_up: bool
) -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "z")
    entry = member("c", Phase.SEEKING, addresses=())
    scene.receive(scene.letter("c", "a", Hello(members=(entry,), rooted=False, reply=False)))
    assert scene.peers["a"].swarm == ANCHOR
    entry = replace(entry, id="b", phase=phase)
    body = Hello(members=(entry,), rooted=False, reply=False)
    effects = scene.receive(scene.letter("b", "a", body, swarm=theirs))
    assert (SwarmGivenUp() in effects) is gives_up
