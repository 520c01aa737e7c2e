"""Several registers in one share: one escrow, parts that can be told apart, clear refusals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Attach, Combine, Effect, Record, Snapshot, Stage
from rumor.gossip.effects.events import Event, ShareRefused
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import ConfigError, LocalProtocolError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements, require_fit
from rumor.gossip.protocol.share import Share
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import ShareId, SharePart
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import REGISTERS_MAX, Form
from rumor.gossip.wire.messages import Chunk, Offer, Push

from ..scene import SMALL, WIDE, Scene, a_push, of

PAIR = ("x", "y")
TWO = Requirements(share_registers=2)
SHARE = ShareId("a", 1, 1)


def table(
    config: ProtocolConfig = SMALL, host: bytes = b"", *, keeps_anchor: bool = False
) -> Scene:
    """Peers whose rules push two registers at a time."""
    scene = Scene(config, TWO)
    scene.founded("a", "b", "c", host=host, keeps_anchor=keeps_anchor)
    return scene


def push_pair(context: RuleContext) -> None:
    context.push("b", ONE // 2, register=PAIR)


def arrived(config: ProtocolConfig = SMALL) -> Scene:
    """A share of two registers lies at b."""
    scene = table(config)
    scene.act("a", push_pair)
    scene.deliver()
    return scene


def snapshots(effects: list[Effect | Event]) -> list[Snapshot]:
    return of(effects, Snapshot)


def test_two_registers_are_one_share_with_one_escrow() -> None:
    scene = table()
    effects = scene.act("a", push_pair)
    assert snapshots(effects) == [Snapshot(1, PAIR, Form(registers=2))]
    entries = [effect.entry for effect in effects if isinstance(effect, Record)]
    assert entries == [Entry(Kind.PUSHED, ONE // 2, "b", 1, 1)]
    (push,) = scene.sent(effects, Push)
    # 4 numbers, and padding up to a cache line, twice
    assert push.form == Form(registers=2) and push.size_bytes == 128


def test_parts_of_a_share_combine_each_by_itself() -> None:
    scene = arrived()

    def combine(context: RuleContext) -> None:
        (share,) = context.shares()
        assert share.form.registers == 2
        context.combine("y", [(0.5, share), (2.0, share.part(1)), (1.0, share.part(0))])
        context.accept(share)

    effects = scene.act("b", combine)
    assert effects[0] == Combine("y", ((0.5, SHARE), (2.0, SharePart(SHARE, 1)), (1.0, SHARE)))
    assert scene.peers["b"].account.weight == ONE + ONE // 2


@pytest.mark.parametrize(("registers", "index"), [(2, 2), (2, -1), (1, 1)])
def test_there_are_no_more_parts_than_registers(registers: int, index: int) -> None:
    share = Share(SHARE, 5, 0, 0, 0, 0, Form(registers=registers))
    with pytest.raises(LocalProtocolError, match=f"has no part {index}: its parts count from 0 to"):
        share.part(index)


def test_a_share_of_several_registers_is_not_mixed_by_weight_and_stays() -> None:
    scene = arrived()

    def misuse(context: RuleContext) -> None:
        (share,) = context.shares()
        with pytest.raises(LocalProtocolError, match="carries 2 registers and cannot be mixed by"):
            context.mix(share)
        context.accept(share)

    scene.act("b", misuse)
    assert scene.peers["b"].account.weight == ONE + ONE // 2


@pytest.mark.parametrize("several", [(), ("x", "y", "z")])
def test_no_more_registers_are_pushed_than_the_rule_says(several: tuple[str, ...]) -> None:
    scene = table()

    def push(context: RuleContext) -> None:
        words = f"cannot push {len(several)} registers in one share"
        with pytest.raises(LocalProtocolError, match=words):
            context.push("b", 5, register=several)
        context.push("b", 5)

    # Nothing has changed: the next push is the first.
    (push_of_one,) = scene.sent(scene.act("a", push), Push)
    assert push_of_one.seq == 1 and push_of_one.form == Form()


def test_a_rule_that_says_nothing_pushes_one_at_a_time() -> None:
    scene = Scene()
    scene.founded("a", "b")
    with pytest.raises(LocalProtocolError, match=r"the rule's requirements\.share_registers is 1"):
        scene.act("a", push_pair)


def test_one_register_is_the_same_however_it_is_given() -> None:
    given: tuple[str | Sequence[str], ...] = ("y", ("y",), ["y"])
    for register in given:
        effects = table().act("a", partial(RuleContext.push, peer="b", weight=5, register=register))
        assert snapshots(effects) == [Snapshot(1, "y")]


def test_who_takes_one_register_refuses_two() -> None:
    scene = Scene()
    scene.founded("a", "b")
    push = a_push(escrow=5, size_bytes=128, form=Form(registers=2))
    effects = scene.receive(scene.letter("a", "b", push, frame_bytes=128))
    assert ShareRefused("a", "of 2 registers, and scripted takes 1") in effects


def test_pushes_of_the_same_registers_share_a_snapshot_until_one_of_them_changes() -> None:
    def numbers(between: Callable[[RuleContext], object]) -> list[int]:
        def push_twice(context: RuleContext) -> None:
            push_pair(context)
            between(context)
            context.push("c", 5, register=PAIR)

        return [snapshot.id for snapshot in snapshots(table().act("a", push_twice))]

    assert numbers(lambda context: context.combine("z", [(1.0, "x")])) == [1]
    assert numbers(lambda context: context.combine("x", [(2.0, "x")])) == [1, 2]
    assert numbers(lambda context: context.combine("y", [(2.0, "x")])) == [1, 2]


def test_in_another_format_both_travel_in_it() -> None:
    config = replace(SMALL, wire="bfloat16")
    effects = table(config, keeps_anchor=True).act("a", push_pair)
    assert snapshots(effects) == [Snapshot(1, PAIR, Form("bfloat16", registers=2))]
    # One that keeps no anchor sends numbers as they are.
    assert snapshots(table(config).act("a", push_pair)) == [Snapshot(1, PAIR, Form(registers=2))]


def test_in_frames_the_share_is_let_in_as_one() -> None:
    scene = table(WIDE)
    scene.act("a", push_pair)
    (offer,) = [letter.body for letter in scene.mail if isinstance(letter.body, Offer)]
    assert offer.size_bytes == 128 and offer.form == Form(registers=2)
    staged: list[Stage] = []
    while scene.mail:
        envelope = scene.mail.popleft()
        effects = scene.receive(envelope)
        staged += of(effects, Stage)
        assert not isinstance(envelope.body, Chunk) or staged[-1].form == Form(registers=2)
    assert [stage.offset_bytes for stage in staged] == [*range(0, 128, 16)]
    seen: list[int] = []
    scene.act("b", lambda context: seen.extend(s.form.registers for s in context.shares()))
    assert seen == [2]


def test_from_memory_it_is_read_as_one() -> None:
    scene = table(WIDE, host=b"one-host-of-many")
    scene.act("a", push_pair)
    assert scene.receive(scene.mail.popleft()) == [
        Attach(SHARE, "segment 1", 128, Form(registers=2))
    ]


@pytest.mark.parametrize(
    ("requirements", "fits"),
    [
        (Requirements(share_registers=2), True),
        (Requirements(share_registers=REGISTERS_MAX), True),
        (Requirements(share_registers=REGISTERS_MAX + 1), False),
        (Requirements(share_registers=0), False),
        (Requirements(share_registers=2, whole=False), False),
        (Requirements(whole=False), True),
    ],
)
def test_how_many_a_rule_may_say(requirements: Requirements, fits: bool) -> None:
    rule = GoSGD()
    rule.requirements = requirements
    if fits:
        require_fit(rule, "float32", 1, exact=False)
    else:
        with pytest.raises(
            ConfigError, match="registers in one share: it must be from 1 to 16, and"
        ):
            require_fit(rule, "float32", 1, exact=False)


@pytest.mark.parametrize(
    ("wire", "shards", "words"),
    [
        ("topk:0.1", 1, "needs every number"),
        ("float32", 2, "works on whole vectors"),
    ],
)
def test_several_registers_go_whole_or_not_at_all(wire: str, shards: int, words: str) -> None:
    rule = GoSGD()
    rule.requirements = TWO
    with pytest.raises(ConfigError, match=words):
        require_fit(rule, wire, shards, exact=False)
