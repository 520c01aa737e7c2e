"""The view of a rule at a step boundary, and the effects of its actions."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from rumor.gossip.effects.effects import Drop, Halt, Mix
from rumor.gossip.effects.events import PushSkipped, ShareRefused
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.exchange.outgoing import Returned
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE, UNIT
from rumor.gossip.wire.messages import Hello, Push

from ..scene import Scene, destinations, only


def arrived() -> Scene:
    """A share from a is staged at b."""
    scene = Scene().founded()
    scene.act("a", lambda context: context.push("b", ONE // 2, epoch=3, round=7, note=9))
    scene.deliver()
    return scene


def seen(scene: Scene, id: str, *looks: Callable[[RuleContext], object]) -> list[object]:
    found: list[object] = []
    scene.act(id, lambda context: found.extend(look(context) for look in looks))
    return found


def test_a_share_carries_its_senders_fields_and_waits_until_it_is_decided() -> None:
    scene = arrived()
    for _ in range(2):
        (shares,) = seen(scene, "b", RuleContext.shares)
        (share,) = shares  # type: ignore[misc]
        assert (share.sender, share.weight) == ("a", ONE // 2)  # type: ignore[has-type]
        fields = share.epoch, share.round, share.note, share.step  # type: ignore[has-type]
        assert fields == (3, 7, 9, 1)


@pytest.mark.parametrize(
    ("weight", "fraction"), [(ONE // 4, 0.2), (1, 1 / (ONE + 1)), (None, 1 / 3)]
)
def test_a_share_can_be_accepted_in_part(weight: int | None, fraction: float) -> None:
    scene, accepted = arrived(), ONE // 2 if weight is None else weight
    effects = scene.act("b", lambda context: context.mix(context.shares()[0], weight=weight))
    assert [mix.fraction for mix in only(effects, Mix)] == [fraction]
    assert scene.peers["b"].account.weight == ONE + accepted
    scene.deliver()
    assert scene.peers["a"].account.weight == ONE - accepted


def test_a_refused_share_comes_back_to_its_sender() -> None:
    scene = arrived()
    effects = scene.act("b", lambda context: context.mix(context.shares()[0], weight=0))
    assert [type(e) for e in effects][:2] == [Drop, ShareRefused], "accepting nothing is a refusal"
    scene.deliver()
    returned: list[Returned] = []
    for _ in range(2):
        scene.act("a", lambda context: returned.extend(context.returned))
    assert [(back.peer, back.epoch, back.round) for back in returned] == [("b", 3, 7)]


def test_a_share_is_decided_once() -> None:
    def twice(context: RuleContext) -> None:
        (share,) = context.shares()
        context.refuse(share, "no")
        context.mix(share)

    with pytest.raises(LocalProtocolError, match="not among this call's shares"):
        arrived().act("b", twice)


@pytest.mark.parametrize("weight", [0, -UNIT, ONE + UNIT])
def test_a_push_has_at_most_the_held_weight_and_at_least_the_minimum(weight: int) -> None:
    message = f"cannot push {weight // UNIT} of {2**40} units to b"
    with pytest.raises(LocalProtocolError, match=message):
        Scene().founded().push("a", "b", weight)
    with pytest.raises(LocalProtocolError):
        Scene().founded().push("a", "bb")  # one share at a time


def test_peers_with_open_escrow_are_skipped_and_credit_limits_outstanding_shares() -> None:
    drawn: list[str | None] = []

    def draw(context: RuleContext) -> None:
        drawn.append(context.draw(["b"]))
        context.push("b", 5)
        drawn.extend([context.draw(["b"]), context.draw([]), context.draw(["c"])])
        context.push("c", 5)
        # A leaver ignores credit.
        drawn.extend([context.draw(), context.draw(urgent=True), context.draw(["b"], urgent=True)])
        assert not context.can_push("d")

    Scene().founded(*"abcd").act("a", draw)
    assert drawn == ["b", None, None, "c", None, "d", None]


def test_a_rule_sees_the_changes_since_its_last_call() -> None:
    scene = Scene().founded()
    found: list[object] = []

    def look(context: RuleContext) -> None:
        found.append((context.elapsed_s, context.step, context.round, context.trained))

    scene.act("a", look)
    scene.wait(0.25)
    scene.push("a", "b")
    scene.wait(0.5)
    scene.act("a", look, trained=False)
    assert found == [(0.0, 1, 0, True), (0.5, 2, 1, False)]


def test_a_rule_can_read_the_topology_of_any_round() -> None:
    looks = (lambda c: c.neighbors(5), lambda c: c.table.takers())
    assert seen(Scene().founded(), "a", *looks) == [("b",), ("a", "b")]
    # Without a matrix the weights are even, over live peers or the given ones.
    weights: list[Mapping[PeerId, float]] = []
    Scene().founded(*"abc").act(
        "a", lambda context: weights.extend([context.weights(0), context.weights(0, ("a", "b"))])
    )
    assert weights == [dict.fromkeys("abc", 1 / 3), dict.fromkeys("ab", 1 / 2)]


def every_third(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """A schedule that gives every peer one neighbor in rounds 2, 5, 8, ..."""
    others = [other for other in live if other != peer]
    return (others[round // 3 % len(others)],) if others and round % 3 == 2 else ()


def test_rounds_without_a_neighbor_are_skipped() -> None:
    """A round number that only counts pushes would stay at such a round forever."""
    scene = Scene().founded(neighbors=every_third)
    found: list[object] = []

    def push_and_look(context: RuleContext) -> None:
        context.push_half()
        found.append((context.round, context.neighbors()))

    for _ in range(3):
        assert len(scene.sent(scene.act("a", push_and_look), Push)) == 1
        scene.deliver()
        scene.mix_all("b")
        scene.deliver()
    # Each push ends its round, and the next round has no neighbor again.
    assert found == [(1, ()), (2, ()), (3, ())]


def test_a_neighbor_with_open_escrow_does_not_block_the_schedule() -> None:
    scene = Scene().founded(*"abc", neighbors=every_third)
    pushed: list[str] = []
    for _ in range(2):
        pushed += destinations(scene.act("a", RuleContext.push_half), Push)
    # No peer has answered: the first push is outstanding, and the second goes elsewhere.
    assert sorted(pushed) == ["b", "c"]


def test_no_round_is_skipped_without_credit() -> None:
    requested_rounds: list[int] = []

    def recording_neighbors(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
        requested_rounds.append(round)
        return tuple(other for other in live if other != peer)

    scene = Scene().founded(*"abcd", neighbors=recording_neighbors)
    for _ in range(2):
        scene.act("a", RuleContext.push_half)
    requested_rounds.clear()
    assert PushSkipped("no neighbor free") in scene.act("a", RuleContext.push_half)
    assert requested_rounds == []


def test_a_suspected_peer_is_not_drawn_and_does_not_count_as_gone() -> None:
    scene = Scene().founded()
    scene.wake_for("a", 15.0)
    looks = (RuleContext.draw, lambda c: c.can_push("b"), RuleContext.neighbors)
    assert seen(scene, "a", *looks) == [None, False, ("b",)]
    fates = (lambda c: c.fate("b", 1), lambda c: c.fate("unknown", 1))
    assert seen(scene, "a", *fates) == ["", "left"], "an unknown peer counts as gone"


def test_the_mean_round_trip_covers_only_live_peers() -> None:
    """A slow neighbor that died a month ago must not slow adaptive emission forever."""
    scene = Scene().founded(*"abc")
    assert seen(scene, "a", RuleContext.roundtrip_s) == [None]
    for peer, wait_s in (("b", 0.25), ("c", 8.0)):
        scene.push("a", peer)
        scene.deliver()
        scene.wait(wait_s)
        scene.mix_all(peer)
        scene.deliver()
    assert seen(scene, "a", RuleContext.roundtrip_s) == [pytest.approx(4.125)]
    for _ in range(50):
        scene.wait(1.0)
        for id in "ab":
            scene.wake(id)
        scene.deliver(Hello)
        scene.peers.pop("c", None)
    assert seen(scene, "a", RuleContext.roundtrip_s) == [0.25]


def test_a_synchronous_rule_halts_if_two_founders_only_dial_out() -> None:
    scene = Scene().founded(*"abc", rules={id: DPSGD() for id in "abc"}, outward="ab")
    (halt,) = only(scene.step("c"), Halt)
    assert halt.reason == (
        "a and b only dial out, so that neither can reach the other, and dpsgd needs every link: "
        "give one of them an address, or use a rule that waits for nobody, such as gosgd"
    )
