"""Formats that need the anchor go only where it is known; a newcomer gets it with its copy."""

from dataclasses import replace

import pytest

from rumor.gossip import ConfigError, GoSGD, ProtocolConfig, Rule, RuleContext
from rumor.gossip.effects.effects import Effect, Mix, Snapshot
from rumor.gossip.effects.events import Event, ShareRefused
from rumor.gossip.protocol.rule import require_fit
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ask, Hello, Member, Offer, Phase, Push
from rumor.sim.fuzz.vector import SCHEMA, schema_of

from ..scene import ANCHOR, OTHER_ANCHOR, SMALL, Scene

HALVES = replace(SMALL, wire="bfloat16")
SPARSE = replace(SMALL, wire="topk:0.25")


def forms(effects: list[Effect | Event]) -> list[Form]:
    return [effect.form for effect in effects if isinstance(effect, Snapshot)]


def seeking(
    scene: Scene, *, donor_keeps: bool = True, keeps: bool = True, anchor: bytes = OTHER_ANCHOR
) -> None:
    """B has asked a, which founded alone, for a copy."""
    scene.enter("a", keeps_anchor=donor_keeps)
    scene.join("a")
    scene.enter("b", keeps_anchor=keeps, anchor=anchor)
    scene.join("b", "a")
    scene.deliver(Hello)


def anchored(scene: Scene, peer: str, of: str) -> bool:
    """Whether one peer believes that another knows the anchor."""
    (member,) = [m for m in scene.peers[of].live() if m.id == peer]
    return member.anchored


def test_among_founders_shares_are_differences_from_what_they_began_with() -> None:
    scene = Scene(HALVES)
    scene.founded("a", "b", keeps_anchor=True)
    effects = scene.push("a", "b", ONE // 2)
    assert forms(effects) == [Form("bfloat16")]
    (push,) = scene.sent(effects, Push)
    # 4 numbers, and padding up to 8, of 2 bytes each, padded to a cache line
    assert push.form == Form("bfloat16") and push.size_bytes == 64
    scene.deliver()
    assert [e.form for e in scene.mix_all("b") if isinstance(e, Mix)] == [Form("bfloat16")]


def test_one_that_keeps_no_anchor_gets_numbers_as_they_are() -> None:
    scene = Scene(HALVES)
    scene.enter("a", keeps_anchor=True)
    scene.enter("b")
    scene.join("a", "b", founders=2)
    scene.join("b", "a", founders=2)
    for _ in range(4):
        scene.deliver()
        scene.wait(1.0)
        scene.wake("a")
        scene.wake("b")
    scene.deliver()
    assert forms(scene.push("a", "b", 5)) == [Form()]
    assert forms(scene.push("b", "a", 5)) == [Form()]


@pytest.mark.parametrize(
    ("rule", "wire"),
    [("adpsgd", "topk:0.25"), ("dpsgd", "topk:0.25"), ("allreduce", "int8")],
)
def test_a_share_in_a_format_that_a_rule_cannot_use_is_refused(rule: str, wire: str) -> None:
    scene = Scene()
    rules = {peer: make_rule(rule) for peer in "ab"}
    scene.founded("a", "b", rules=rules, keeps_anchor=True)
    assert scene.peers["b"].is_anchored
    form = Form(wire)
    size = form.size_bytes(SCHEMA, 0)
    push = Push(seq=1, escrow=5, size_bytes=size, form=form, epoch=1, round=0, note=0, step=0)
    effects = scene.receive(scene.letter("a", "b", push, frame_bytes=size))
    assert ShareRefused("a", f"in a format that {rule} cannot use") in effects


def test_topk_needs_no_anchor() -> None:
    scene = Scene(SPARSE)
    scene.founded("a", "b")
    assert forms(scene.push("a", "b", 5)) == [Form("topk:0.25")]
    scene.deliver()
    assert [e.form for e in scene.mix_all("b") if isinstance(e, Mix)] == [Form("topk:0.25")]


@pytest.mark.parametrize("config", [HALVES, SPARSE])
def test_while_merging_and_when_leaving_numbers_go_as_they_are(config: ProtocolConfig) -> None:
    scene = Scene(config)
    scene.founded("a", "b", keeps_anchor=True)
    assert forms(scene.act("a", lambda context: context.push("b", 5, whole=True))) == [Form()]
    scene = Scene(config)
    scene.founded("a", "b", keeps_anchor=True)
    assert forms(scene.leave("a")) == [Form()]
    scene = Scene(config)
    scene.founded("a", "b", keeps_anchor=True)
    scene.finish("a")
    scene.finish("b")
    scene.deliver()
    effects = scene.act("a", lambda context: context.push("b", 5), trained=False)
    assert scene.peers["a"].merging and forms(effects) == [Form()]


def test_a_newcomer_that_needs_the_anchor_gets_it_with_its_copy() -> None:
    scene = Scene(HALVES)
    seeking(scene)
    asked = [e.body for e in scene.mail if isinstance(e.body, Ask)]
    assert asked == [Ask(anchor=True)]
    scene.deliver()
    effects = scene.step("a")
    assert forms(effects) == [Form(copy=True, anchor=True)]
    scene.deliver()
    assert not anchored(scene, "b", of="b")
    scene.step("b", trained=False)
    scene.deliver()
    assert anchored(scene, "b", of="b") and anchored(scene, "b", of="a")
    assert forms(scene.push("a", "b", 5)) == [Form("bfloat16")]
    assert forms(scene.push("b", "a", 5)) == [Form("bfloat16")]


def test_a_newcomer_that_began_with_the_same_numbers_needs_no_anchor() -> None:
    scene = Scene(HALVES)
    seeking(scene, anchor=ANCHOR)
    assert [e.body for e in scene.mail if isinstance(e.body, Ask)] == [Ask(anchor=False)]
    scene.deliver()
    assert forms(scene.step("a")) == [Form(copy=True)]
    scene.deliver()
    scene.step("b", trained=False)
    assert anchored(scene, "b", of="b")


def test_a_donor_that_does_not_know_the_anchor_gives_a_copy_without() -> None:
    scene = Scene(HALVES)
    seeking(scene, donor_keeps=False)
    scene.deliver()
    assert forms(scene.step("a")) == [Form(copy=True)]
    scene.deliver()
    scene.step("b", trained=False)
    scene.deliver()
    assert scene.peers["b"].phase is Phase.TRAINING and not anchored(scene, "b", of="b")
    assert forms(scene.push("b", "a", 5)) == [Form()]


def test_one_without_use_for_the_anchor_asks_for_none() -> None:
    scene = Scene(SPARSE)
    seeking(scene)
    assert [e.body for e in scene.mail if isinstance(e.body, Ask)] == [Ask(anchor=False)]


def test_a_difference_from_an_unknown_anchor_is_refused() -> None:
    scene = Scene()
    scene.founded("a", "b")
    push = Push(seq=1, escrow=9, size_bytes=64, form=Form("int8"), epoch=0, round=0, note=0, step=0)
    push = replace(push, size_bytes=push.form.size_bytes(SCHEMA, 0))
    effects = scene.receive(scene.letter("a", "b", push, frame_bytes=push.size_bytes))
    assert ShareRefused("a", "a difference from an anchor that is not known here") in effects


@pytest.mark.parametrize("wire", ["topk:0.5", "int8"])
def test_a_copy_that_is_not_whole_is_none(wire: str) -> None:
    scene = Scene()
    seeking(scene)
    form = Form(wire, copy=True)
    size = form.size_bytes(SCHEMA, 0)
    offer = Offer(
        seq=1, escrow=9, size_bytes=size, frame_bytes=size, form=form,
        epoch=0, round=0, note=0, step=0,
    )  # fmt: skip
    assert ShareRefused("a", "not a copy") in scene.receive(scene.letter("a", "b", offer))


def test_one_that_gives_its_swarm_up_knows_the_anchor_no_more() -> None:
    scene = Scene(HALVES)
    scene.enter("a", keeps_anchor=True, anchor=OTHER_ANCHOR)
    scene.join("a")
    assert anchored(scene, "a", of="a")
    member = Member(id="b", incarnation=1, heartbeat=1, phase=Phase.TRAINING, step=0)
    hello = Hello(members=(member,), rooted=True, reply=False)
    scene.receive(scene.letter("b", "a", hello, swarm=ANCHOR))
    assert scene.peers["a"].swarm == ANCHOR and not anchored(scene, "a", of="a")


def test_of_several_shards_all_must_bring_their_part_of_the_anchor() -> None:
    schema = schema_of(16, shards=2)
    for with_anchor in ((True, True), (False, True), (True, False)):
        scene = Scene(HALVES)
        scene.enter("a", schema=schema, keeps_anchor=True)
        scene.join("a")
        scene.enter("b", schema=schema, keeps_anchor=True, anchor=OTHER_ANCHOR)
        scene.join("b", "a")
        scene.deliver()
        scene.wait(0.2)
        scene.wake("b")
        for shard, anchor in enumerate(with_anchor):
            form = Form(copy=True, anchor=anchor)
            size = form.size_bytes(schema, shard)
            push = Push(
                seq=1, escrow=9, size_bytes=size, form=form, epoch=0, round=0, note=0, step=0
            )
            share = scene.letter("a", "b", push, frame_bytes=size, shard=shard)
            scene.receive(replace(share, schema=schema.hash))
            scene.step("b", trained=False)
        assert scene.peers["b"].phase is Phase.TRAINING
        assert anchored(scene, "b", of="b") == all(with_anchor)


def test_two_pushes_in_different_forms_take_two_snapshots() -> None:
    scene = Scene(HALVES)
    scene.founded("a", "b", "c", keeps_anchor=True)

    def push_both(context: RuleContext) -> None:
        context.push("b", 5)
        context.push("c", 5, whole=True)

    assert forms(scene.act("a", push_both)) == [Form("bfloat16"), Form()]


AVERAGING = {*RULES} - {"allreduce"}
BY_WEIGHT = {"gosgd", "sgp", "sparta", "divshare"}
OF_DIFFERENCES = {"choco", "sparseloco"}


@pytest.mark.parametrize(
    ("wire", "shards", "exact", "fitting"),
    [
        ("float32", 1, False, {*RULES}),
        ("bfloat16", 1, False, AVERAGING),
        ("int8", 1, False, AVERAGING),
        ("topk:0.1", 1, False, BY_WEIGHT | OF_DIFFERENCES),
        ("topk2bit:0.1", 1, False, OF_DIFFERENCES),
        ("float32", 2, False, BY_WEIGHT),
        ("float32", 1, True, BY_WEIGHT),
    ],
)
def test_a_rule_is_refused_shares_that_it_cannot_work_with(
    wire: str, shards: int, exact: bool, fitting: set[str]
) -> None:
    for name in RULES:
        rule: Rule = make_rule(name)
        if name in fitting:
            require_fit(rule, wire, shards, exact=exact)
        else:
            with pytest.raises(ConfigError, match=f"rule '{name}'"):
                require_fit(rule, wire, shards, exact=exact)


def test_a_rule_that_does_not_fit_makes_no_peer() -> None:
    class Plain:
        name, registers, outstanding_max = "plain", (), 1
        step = GoSGD().step

    scene = Scene(SPARSE)
    with pytest.raises(ConfigError, match=r"wire is 'topk:0\.25': rule 'plain' needs every number"):
        scene.enter("a", rule=Plain())
