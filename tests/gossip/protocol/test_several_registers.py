"""Several registers in one share: one escrow, separate parts, clear refusals."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Attach, Combine, Snapshot, Stage
from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import ConfigError, LocalProtocolError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements, require_fit
from rumor.gossip.protocol.share import Share
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import ShareId, SharePart
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import REGISTERS_MAX, Form
from rumor.gossip.wire.messages import Offer, Push

from ..scene import SMALL, WIDE, Scene, a_push, only

PAIR = ("x", "y")
TWO = Requirements(share_registers=2)
SHARE = ShareId("a", 1, 1)


def two_register_scene(
    config: ProtocolConfig = SMALL, host: bytes = b"", *, keeps_anchor: bool = False
) -> Scene:
    """Peers with rules that push two registers at a time."""
    return Scene(config, TWO).founded("a", "b", "c", host=host, keeps_anchor=keeps_anchor)


def push_pair(context: RuleContext) -> None:
    context.push("b", ONE // 2, register=PAIR)


def arrived() -> Scene:
    """A share of two registers is staged at b."""
    scene = two_register_scene()
    scene.act("a", push_pair)
    scene.deliver()
    return scene


def test_two_registers_are_one_share_with_one_escrow() -> None:
    scene = two_register_scene()
    effects = scene.act("a", push_pair)
    assert only(effects, Snapshot) == [Snapshot(1, PAIR, Form(registers=2))]
    assert only(effects, Entry) == [Entry(Kind.PUSHED, ONE // 2, "b", 1, 1)]
    (push,) = scene.sent(effects, Push)
    # 4 numbers, and padding up to a cache line, twice
    assert push.form == Form(registers=2) and push.size_bytes == 128


def test_parts_of_a_share_are_combined_separately_and_not_mixed_by_weight() -> None:
    scene = arrived()

    def combine(context: RuleContext) -> None:
        (share,) = context.shares()
        assert share.form.registers == 2
        with pytest.raises(LocalProtocolError, match="carries 2 registers and cannot be mixed by"):
            context.mix(share)
        context.combine("y", [(0.5, share), (2.0, share.part(1)), (1.0, share.part(0))])
        context.accept(share)

    effects = scene.act("b", combine)
    assert effects[0] == Combine("y", ((0.5, SHARE), (2.0, SharePart(SHARE, 1)), (1.0, SHARE)))
    assert scene.peers["b"].account.weight == ONE + ONE // 2


@pytest.mark.parametrize(("registers", "index"), [(2, 2), (2, -1), (1, 1)])
def test_a_share_has_as_many_parts_as_registers(registers: int, index: int) -> None:
    share = Share(SHARE, 5, 0, 0, 0, 0, Form(registers=registers))
    with pytest.raises(LocalProtocolError, match=f"has no part {index}: its parts count from 0 to"):
        share.part(index)


@pytest.mark.parametrize("several", [(), ("x", "y", "z")])
def test_a_rule_cannot_push_more_registers_than_it_declares(several: tuple[str, ...]) -> None:
    scene = two_register_scene()

    def push(context: RuleContext) -> None:
        message = f"cannot push {len(several)} registers in one share"
        with pytest.raises(LocalProtocolError, match=message):
            context.push("b", 5, register=several)
        context.push("b", 5)

    # Nothing has changed: the next push is the first.
    (push_of_one,) = scene.sent(scene.act("a", push), Push)
    assert push_of_one.seq == 1 and push_of_one.form == Form()


def test_a_rule_pushes_and_accepts_one_register_at_a_time_by_default() -> None:
    forms: tuple[str | Sequence[str], ...] = ("y", ("y",), ["y"])
    for register in forms:
        effects = two_register_scene().act(
            "a", partial(RuleContext.push, peer="b", weight=5, register=register)
        )
        assert only(effects, Snapshot) == [Snapshot(1, "y")], "all forms name one register"
    scene = Scene().founded()
    with pytest.raises(LocalProtocolError, match=r"the rule's requirements\.share_registers is 1"):
        scene.act("a", push_pair)
    body = a_push(size_bytes=128, form=Form(registers=2))
    effects = scene.tell("a", "b", body, frame_bytes=128)
    assert ShareRefused("a", "of 2 registers, and scripted takes 1") in effects


@pytest.mark.parametrize(("changed", "numbers"), [("z", [1]), ("x", [1, 2]), ("y", [1, 2])])
def test_pushes_share_a_snapshot_until_a_register_changes(changed: str, numbers: list[int]) -> None:
    def push_twice(context: RuleContext) -> None:
        push_pair(context)
        context.combine(changed, [(2.0, "x")])
        context.push("c", 5, register=PAIR)

    assert [
        snapshot.id for snapshot in only(two_register_scene().act("a", push_twice), Snapshot)
    ] == numbers


@pytest.mark.parametrize("keeps_anchor", [False, True])
def test_both_registers_travel_in_the_configured_format(keeps_anchor: bool) -> None:
    scene = two_register_scene(replace(SMALL, wire="bfloat16"), keeps_anchor=keeps_anchor)
    form = Form("bfloat16" if keeps_anchor else "float32", registers=2)
    assert only(scene.act("a", push_pair), Snapshot) == [Snapshot(1, PAIR, form)]


def test_both_registers_are_one_share_in_frames_or_shared_memory() -> None:
    scene, form = two_register_scene(WIDE), Form(registers=2)
    (offer,) = scene.sent(scene.act("a", push_pair), Offer)
    assert offer.size_bytes == 128 and offer.form == form
    staged = only(scene.deliver(), Stage)
    assert {stage.form for stage in staged} == {form}
    assert [stage.offset_bytes for stage in staged] == [*range(0, 128, 16)]
    seen: list[int] = []
    scene.act("b", lambda context: seen.extend(s.form.registers for s in context.shares()))
    assert seen == [2]
    scene = two_register_scene(WIDE, host=b"one-host-of-many")
    scene.act("a", push_pair)
    assert scene.deliver() == [Attach(SHARE, "segment 1", 128, form)]


@pytest.mark.parametrize(
    ("requirements", "wire", "shards", "message"),
    [
        (Requirements(share_registers=2), "float32", 1, ""),
        (Requirements(share_registers=REGISTERS_MAX), "float32", 1, ""),
        (Requirements(whole=False), "float32", 1, ""),
        (
            Requirements(share_registers=REGISTERS_MAX + 1),
            "float32",
            1,
            "registers in one share: it must be from 1 to 16, and",
        ),
        (
            Requirements(share_registers=0),
            "float32",
            1,
            "registers in one share: it must be from 1 to 16, and",
        ),
        (
            Requirements(share_registers=2, whole=False),
            "float32",
            1,
            "registers in one share: it must be from 1 to 16, and",
        ),
        # Several registers are always pushed whole.
        (TWO, "topk:0.1", 1, "needs every number"),
        (TWO, "float32", 2, "works on whole vectors"),
    ],
)
def test_the_number_of_registers_in_a_share_is_checked(
    requirements: Requirements, wire: str, shards: int, message: str
) -> None:
    rule = GoSGD()
    rule.requirements = requirements
    if message:
        with pytest.raises(ConfigError, match=message):
            require_fit(rule, wire, shards)
    else:
        require_fit(rule, wire, shards)
