"""What a rule sees at a step boundary, and what its actions ask for."""

from collections.abc import Mapping, Sequence

import pytest

from rumor.gossip.effects.effects import Combine, Drop, Halt, Mix, Snapshot
from rumor.gossip.effects.events import PushSkipped, ShareRefused
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.exchange.outgoing import Returned
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.share import Share
from rumor.gossip.protocol.state import Neighbors
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE, UNIT
from rumor.gossip.wire.messages import Ack, Hello, Push
from rumor.sim.fuzz.peers import complete

from ..scene import Scene, of


def two() -> Scene:
    scene = Scene()
    scene.founded("a", "b")
    return scene


def arrived() -> Scene:
    """A share of a lies at b."""
    scene = two()
    scene.act("a", lambda context: context.push("b", ONE // 2, epoch=3, round=7, note=9))
    scene.deliver()
    return scene


def test_a_share_says_what_its_sender_said() -> None:
    seen: list[Share] = []
    arrived().act("b", lambda context: seen.extend(context.shares()))
    (share,) = seen
    assert (share.sender, share.weight) == ("a", ONE // 2)
    assert (share.epoch, share.round, share.note, share.step) == (3, 7, 9, 1)


def test_an_undecided_share_waits_for_the_next_turn() -> None:
    scene = arrived()
    scene.act("b", lambda context: None)
    assert scene.mix_all("b")


def test_a_part_of_a_share_can_be_accepted() -> None:
    scene = arrived()
    effects = scene.act("b", lambda context: context.mix(context.shares()[0], weight=ONE // 4))
    assert [e.fraction for e in effects if isinstance(e, Mix)] == [0.2]
    scene.deliver()
    assert scene.peers["a"].account.weight == ONE - ONE // 4


def test_a_single_grain_of_a_share_can_be_accepted() -> None:
    scene = arrived()
    scene.act("b", lambda context: context.mix(context.shares()[0], weight=1))
    assert scene.peers["b"].account.weight == ONE + 1


def test_nothing_of_a_share_is_a_refusal() -> None:
    scene = arrived()
    effects = scene.act("b", lambda context: context.mix(context.shares()[0], weight=0))
    assert [type(e) for e in effects][:2] == [Drop, ShareRefused]


def test_a_share_is_decided_once() -> None:
    def twice(context: RuleContext) -> None:
        (share,) = context.shares()
        context.refuse(share, "no")
        context.mix(share)

    with pytest.raises(LocalProtocolError, match="not among this call's shares"):
        arrived().act("b", twice)


def test_a_refused_share_comes_back_to_its_sender() -> None:
    scene = arrived()
    scene.act("b", lambda context: context.refuse(context.shares()[0], "no"))
    scene.deliver()
    returned: list[Returned] = []
    scene.act("a", lambda context: returned.extend(context.returned))
    scene.act("a", lambda context: returned.extend(context.returned))
    assert [(back.peer, back.epoch, back.round) for back in returned] == [("b", 3, 7)]


def test_shares_and_registers_combine_into_a_register() -> None:
    scene = arrived()

    def combine(context: RuleContext) -> None:
        (share,) = context.shares()
        context.combine("y", [(0.5, "x"), (2.0, share)])
        context.accept(share)

    effects = scene.act("b", combine)
    assert isinstance(effects[0], Combine) and isinstance(effects[1], Drop)
    assert effects[0].terms == ((0.5, "x"), (2.0, effects[1].share))
    assert scene.peers["b"].account.weight == ONE + ONE // 2


@pytest.mark.parametrize("weight", [0, -UNIT, ONE + UNIT])
def test_no_more_can_be_pushed_than_is_held_and_no_less_than_the_least(weight: int) -> None:
    words = f"cannot push {weight // UNIT} of {2**40} units to b"
    with pytest.raises(LocalProtocolError, match=words):
        two().act("a", lambda context: context.push("b", weight))


def test_only_one_share_can_be_outstanding_toward_a_peer() -> None:
    scene = two()
    scene.push("a", "b", 5)
    with pytest.raises(LocalProtocolError):
        scene.push("a", "b", 5)


def test_a_register_that_changed_needs_a_new_snapshot() -> None:
    scene = Scene()
    scene.founded("a", "b", "c")

    def push_twice(context: RuleContext) -> None:
        context.push("b", 5)
        context.combine("x", [(2.0, "x")])
        context.push("c", 5)

    effects = scene.act("a", push_twice)
    assert [e.id for e in effects if isinstance(e, Snapshot)] == [1, 2]


def test_a_peer_with_unresolved_escrow_is_passed_over() -> None:
    scene = Scene()
    scene.founded("a", "b", "c")
    drawn = []

    def push_and_draw(context: RuleContext) -> None:
        drawn.append(context.draw(["b"]))
        context.push("b", 5)
        drawn.extend([context.draw(["b"]), context.draw(), context.draw([])])

    scene.act("a", push_and_draw)
    assert drawn == ["b", None, "c", None]


def test_credit_bounds_what_is_outstanding_over_all_peers() -> None:
    scene = Scene()
    scene.founded("a", "b", "c", "d")

    def push_all(context: RuleContext) -> None:
        for peer in context.neighbors():
            if context.can_push(peer):
                context.push(peer, 5)

    assert len(scene.sent(scene.act("a", push_all), Push)) == 2


def test_half_a_push_is_skipped_for_a_reason() -> None:
    scene = two()
    scene.push("a", "b", ONE - 5)
    scene.receive(scene.letter("b", "a", Ack(1, ONE - 5)))
    assert PushSkipped("too little weight") in scene.act("a", RuleContext.push_half)
    scene = Scene()
    scene.enter("a")
    scene.join("a")
    assert PushSkipped("no neighbor free") in scene.act("a", RuleContext.push_half)


def test_a_rule_knows_what_passed_since_the_one_before() -> None:
    scene = two()
    seen = []

    def look(context: RuleContext) -> None:
        seen.append((context.elapsed_s, context.step, context.round, context.trained))

    scene.act("a", look)
    scene.wait(0.25)
    scene.push("a", "b", 5)
    scene.wait(0.5)
    scene.act("a", look, trained=False)
    assert seen == [(0.0, 1, 0, True), (0.5, 2, 1, False)]


def test_the_topology_of_any_round_can_be_asked_for() -> None:
    seen = []
    two().act("a", lambda context: seen.extend([context.neighbors(5), context.live()]))
    assert seen == [("b",), ("a", "b")]


def test_a_topology_without_a_matrix_gives_even_shares_of_live_peers_or_of_those_named() -> None:
    seen: list[Mapping[PeerId, float]] = []
    scene = founded(complete, "a", "b", "c")
    scene.act(
        "a", lambda context: seen.extend([context.weights(0), context.weights(0, ("a", "b"))])
    )
    assert seen == [dict.fromkeys("abc", 1 / 3), dict.fromkeys("ab", 1 / 2)]


def every_third(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """A schedule that gives everybody one neighbor in rounds 2, 5, 8, ..."""
    others = [other for other in live if other != peer]
    return (others[round // 3 % len(others)],) if others and round % 3 == 2 else ()


def mix_all(context: RuleContext) -> None:
    for share in context.shares():
        context.mix(share)


def founded(neighbors: Neighbors, *ids: PeerId) -> Scene:
    """Founders of one swarm, all on this topology."""
    scene = Scene()
    scene.founded(*ids, neighbors=neighbors)
    return scene


def test_rounds_that_give_a_peer_nobody_are_passed_over() -> None:
    """A count of pushes alone would stand still at such a round for ever."""
    scene = founded(every_third, "a", "b")
    seen: list[object] = []

    def push_and_look(context: RuleContext) -> None:
        context.push_half()
        seen.append((context.round, context.neighbors()))

    for _ in range(3):
        assert len(scene.sent(scene.act("a", push_and_look), Push)) == 1
        scene.deliver()
        scene.act("b", mix_all)
        scene.deliver()
    # Each push leaves its round behind, and the next one has nobody again.
    assert seen == [(1, ()), (2, ()), (3, ())]


def test_a_neighbor_who_owes_an_answer_does_not_hold_up_the_schedule() -> None:
    scene = founded(every_third, "a", "b", "c")
    for _ in range(2):
        scene.act("a", RuleContext.push_half)
    # Nobody has answered: the first push is outstanding, and the second goes elsewhere.
    pushes = [letter for letter in scene.mail if isinstance(letter.body, Push)]
    assert sorted(letter.destination for letter in pushes) == ["b", "c"]


def test_without_credit_no_round_is_passed_over() -> None:
    asked: list[int] = []

    def listening(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
        asked.append(round)
        return tuple(other for other in live if other != peer)

    scene = founded(listening, "a", "b", "c", "d")
    for _ in range(2):
        scene.act("a", RuleContext.push_half)
    asked.clear()
    assert PushSkipped("no neighbor free") in scene.act("a", RuleContext.push_half)
    assert asked == []


def outward_ring(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """A ring, which gives up its last link in odd rounds."""
    if peer not in live:
        return ()
    at = live.index(peer)
    both = live[at - 1], live[(at + 1) % len(live)]
    return tuple(sorted(set(both) - {peer}))


def dialling_out(*ids: PeerId) -> Scene:
    """Peers a to d in a ring, some of which only dial out."""
    scene = Scene()
    for id in "abcd":
        scene.enter(id, neighbors=outward_ring, addresses=() if id in ids else (id,))
    for id in "abcd":
        scene.join(id, *(other for other in "abcd" if other != id and other not in ids), founders=4)
    for _ in range(8):
        scene.deliver()
        scene.wait(1.0)
        for id in "abcd":
            scene.wake(id)
    scene.deliver()
    return scene


@pytest.mark.parametrize(
    ("ids", "neighbors"),
    [
        ("", {"a": "bd", "b": "ac", "c": "bd", "d": "ac"}),
        ("a", {"a": "bd", "b": "ac", "c": "bd", "d": "ac"}),
        ("abc", {"a": "d", "b": "d", "c": "d", "d": "abc"}),
    ],
)
def test_a_topology_leads_no_link_between_two_that_only_dial_out(
    ids: str, neighbors: dict[str, str]
) -> None:
    scene, seen = dialling_out(*ids), dict[str, str]()

    def look(context: RuleContext) -> None:
        seen[context.me] = "".join(sorted(context.neighbors()))
        assert context.outward == set(ids)

    for id in "abcd":
        scene.act(id, look)
    assert seen == neighbors


def test_whoever_is_pushed_to_can_be_reached() -> None:
    scene = dialling_out("a", "b", "c")
    for id in "abcd":
        scene.act(id, RuleContext.push_half)
    pushes = [(m.source, m.destination) for m in scene.mail if isinstance(m.body, Push)]
    assert len(pushes) == 4 and all("d" in ends for ends in pushes)


def test_credit_is_no_matter_to_one_that_goes() -> None:
    scene = Scene()
    scene.founded("a", "b", "c", "d")
    drawn = []

    def draw(context: RuleContext) -> None:
        context.push("b", 5)
        context.push("c", 5)
        drawn.extend([context.draw(), context.draw(urgent=True), context.draw(["b"], urgent=True)])

    scene.act("a", draw)
    assert drawn == [None, "d", None]


def test_one_that_is_suspected_is_not_drawn_and_has_met_no_fate() -> None:
    scene = two()
    for _ in range(15):
        scene.wait(1.0)
        scene.wake("a")
    seen = []
    scene.act(
        "a",
        lambda context: seen.extend(
            [context.draw(), context.can_push("b"), context.fate("b", 1), context.neighbors()]
        ),
    )
    assert seen == [None, False, "", ("b",)]


def test_one_that_nobody_has_heard_of_is_gone_for_all_that_a_rule_can_tell() -> None:
    seen: list[str] = []
    two().act("a", lambda context: seen.extend([context.fate("nobody", 1), context.fate("b", 1)]))
    assert seen == ["left", ""]


def test_how_long_an_answer_takes_is_learnt_from_answers() -> None:
    scene, seen = two(), []
    look = lambda context: seen.append(context.roundtrip_s())  # noqa: E731
    scene.act("a", look)
    scene.push("a", "b", 5)
    scene.deliver()
    scene.wait(0.25)
    scene.mix_all("b")
    scene.deliver()
    scene.act("a", look)
    assert seen == [None, 0.25]


def test_how_long_an_answer_takes_is_learnt_from_those_who_live() -> None:
    """A slow neighbor that died a month ago must not slow adaptive emission for good."""
    scene, seen = Scene(), []
    scene.founded("a", "b", "c")
    for peer, wait_s in (("b", 0.25), ("c", 8.0)):
        scene.push("a", peer, 5)
        scene.deliver()
        scene.wait(wait_s)
        scene.mix_all(peer)
        scene.deliver()
    look = lambda context: seen.append(context.roundtrip_s())  # noqa: E731
    scene.act("a", look)
    for _ in range(50):
        scene.wait(1.0)
        for id in "ab":
            scene.wake(id)
        scene.deliver(Hello)
        scene.peers.pop("c", None)
    scene.act("a", look)
    assert seen == [pytest.approx(4.125), 0.25]


def test_a_synchronous_rule_halts_where_two_founders_only_dial_out() -> None:
    scene = Scene()
    for id in "abc":
        scene.enter(id, rule=DPSGD(), addresses=("c",) if id == "c" else ())
    for id in "abc":
        scene.join(id, *("c" if id != "c" else ""), founders=3)
    for _ in range(6):
        scene.deliver()
        scene.wait(1.0)
        for id in "abc":
            scene.wake(id)
    scene.deliver()
    (halt,) = of(scene.step("c"), Halt)
    assert halt.reason == (
        "a and b only dial out, so that neither can reach the other, and dpsgd needs every link: "
        "give one of them an address, or use a rule that waits for nobody, such as gosgd"
    )
