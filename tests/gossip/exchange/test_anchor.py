"""Formats that need the anchor go only to peers that know it; newcomers get it with a copy."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Mix, Snapshot
from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import require_fit
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.rules.registry import RULES, make_rule
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ask, Hello, Phase, Push
from rumor.sim.fuzz.vector import SCHEMA, schema_of

from ..scene import ANCHOR, OTHER_ANCHOR, SMALL, Effects, Scene, a_push, an_offer, member, only

HALVES = replace(SMALL, wire="bfloat16")
SPARSE = replace(SMALL, wire="topk:0.25")


def forms(effects: Effects) -> list[Form]:
    return [snapshot.form for snapshot in only(effects, Snapshot)]


def ask_for_copy(
    scene: Scene, *, donor_keeps: bool = True, keeps: bool = True, anchor: bytes = OTHER_ANCHOR
) -> None:
    """Let b ask the lone founder a for a copy."""
    scene.enter("a", keeps_anchor=donor_keeps)
    scene.join("a")
    scene.enter("b", keeps_anchor=keeps, anchor=anchor)
    scene.join("b", "a")
    scene.deliver(Hello)


def knows_anchor(scene: Scene, peer: str, of: str) -> bool:
    """Return whether one peer believes that another knows the anchor."""
    (member,) = [m for m in scene.peers[of].table.live() if m.id == peer]
    return member.anchored


@pytest.mark.parametrize(
    ("config", "keeps", "form"),
    [
        (HALVES, True, Form("bfloat16")),
        (HALVES, False, Form()),
        (SPARSE, False, Form("topk:0.25")),
    ],
)
def test_shares_are_differences_if_both_peers_keep_the_anchor(
    config: ProtocolConfig, keeps: bool, form: Form
) -> None:
    scene = Scene(config)
    scene.enter("a", keeps_anchor=True)
    scene.enter("b", keeps_anchor=keeps)
    scene.found("a", "b")
    for one, other in ("ab", "ba"):
        effects = scene.push(one, other)
        assert forms(effects) == [form] == [push.form for push in scene.sent(effects, Push)]
    scene.deliver()
    assert [mix.form for mix in only(scene.mix_all("b"), Mix)] == [form]


@pytest.mark.parametrize(
    ("rule", "form", "why"),
    [
        ("adpsgd", Form("topk:0.25"), "in a format that adpsgd cannot use"),
        ("dpsgd", Form("topk:0.25"), "in a format that dpsgd cannot use"),
        ("allreduce", Form("int8"), "in a format that allreduce cannot use"),
        ("gosgd", Form(bare=True), "in a format that gosgd cannot use"),
        ("gosgd", Form("int8", bare=True), "in a format that gosgd cannot use"),
        ("gosgd", Form("int8"), "a difference from an anchor that is not known here"),
    ],
)
def test_a_share_in_an_unusable_format_is_refused(rule: str, form: Form, why: str) -> None:
    scene = Scene()
    rules = {peer: make_rule(rule) for peer in "ab"}
    scene.founded(rules=rules, keeps_anchor=rule != "gosgd")
    assert scene.peers["b"].state.is_anchored is (rule != "gosgd")
    size = form.size_bytes(SCHEMA, 0)
    share = a_push(size_bytes=size, form=form)
    effects = scene.tell("a", "b", share, frame_bytes=size)
    assert ShareRefused("a", why) in effects


@pytest.mark.parametrize("config", [HALVES, SPARSE])
def test_merging_and_leaving_peers_send_unconverted_numbers(config: ProtocolConfig) -> None:
    def founders() -> Scene:
        return Scene(config).founded("a", "b", "c", keeps_anchor=True)

    def push_both(context: RuleContext) -> None:
        context.push("b", 5)
        context.push("c", 5, whole=True)

    assert forms(founders().act("a", push_both)) == [Form(config.wire), Form()]
    assert forms(founders().leave("a")) == [Form()]
    scene = founders()
    for id in "abc":
        scene.finish(id)
    scene.deliver()
    effects = scene.act("a", lambda context: context.push("b", 5), trained=False)
    assert scene.peers["a"].merging and forms(effects) == [Form()]


HALF, PLAIN = Form("bfloat16"), Form()


@pytest.mark.parametrize(
    ("config", "donor_keeps", "anchor", "asks", "copy", "after"),
    [
        (HALVES, True, OTHER_ANCHOR, True, Form(copy=True, anchor=True), HALF),
        (HALVES, True, ANCHOR, False, Form(copy=True), HALF),
        (HALVES, False, OTHER_ANCHOR, True, Form(copy=True), PLAIN),
        (SPARSE, True, OTHER_ANCHOR, False, Form(copy=True), Form("topk:0.25")),
    ],
    ids=["needs the anchor", "same initial model", "donor lacks it", "wire does not need it"],
)
def test_a_newcomer_gets_the_anchor_with_its_copy_if_both_support_it(
    config: ProtocolConfig, donor_keeps: bool, anchor: bytes, asks: bool, copy: Form, after: Form
) -> None:
    scene = Scene(config)
    ask_for_copy(scene, donor_keeps=donor_keeps, anchor=anchor)
    assert [e.body for e in scene.mail if isinstance(e.body, Ask)] == [Ask(anchor=asks)]
    scene.deliver()
    assert forms(scene.step("a")) == [copy]
    scene.deliver()
    assert knows_anchor(scene, "b", of="b") is (anchor == ANCHOR)
    scene.step("b", trained=False)
    scene.deliver()
    assert scene.peers["b"].phase is Phase.TRAINING
    for one in "ab":
        assert knows_anchor(scene, "b", of=one) is (after == HALF)
    for one, other in ("ab", "ba"):
        assert forms(scene.push(one, other)) == [after]


@pytest.mark.parametrize("wire", ["topk:0.5", "int8"])
def test_a_lossy_copy_is_refused(wire: str) -> None:
    scene = Scene()
    ask_for_copy(scene)
    form = Form(wire, copy=True)
    size = form.size_bytes(SCHEMA, 0)
    body = an_offer(size_bytes=size, frame_bytes=size, form=form)
    assert ShareRefused("a", "not a copy") in scene.tell("a", "b", body)


def test_a_peer_that_gives_up_its_swarm_forgets_the_anchor() -> None:
    scene = Scene(HALVES)
    scene.enter("a", keeps_anchor=True, anchor=OTHER_ANCHOR)
    scene.join("a")
    assert knows_anchor(scene, "a", of="a")
    scene.send_hello("a", member("b"), swarm=ANCHOR)
    assert scene.peers["a"].swarm == ANCHOR and not knows_anchor(scene, "a", of="a")


@pytest.mark.parametrize("with_anchor", [(True, True), (False, True), (True, False)])
def test_a_newcomer_needs_the_anchor_part_of_every_shard(with_anchor: tuple[bool, ...]) -> None:
    schema = schema_of(16, shards=2)
    scene = Scene(HALVES)
    scene.enter("a", schema=schema, keeps_anchor=True)
    scene.join("a")
    scene.enter("b", schema=schema, keeps_anchor=True, anchor=OTHER_ANCHOR)
    scene.ask("b", "a")
    for shard, anchor in enumerate(with_anchor):
        form = Form(copy=True, anchor=anchor)
        size = form.size_bytes(schema, shard)
        body = a_push(size_bytes=size, form=form)
        scene.tell("a", "b", body, frame_bytes=size, shard=shard, schema=schema.hash)
        scene.step("b", trained=False)
    assert scene.peers["b"].phase is Phase.TRAINING
    assert knows_anchor(scene, "b", of="b") == all(with_anchor)


AVERAGING = {*RULES} - {"allreduce"}
BY_WEIGHT = {"gosgd", "sgp", "sparta", "divshare"}
OF_DIFFERENCES = {"choco", "sparseloco"}


@pytest.mark.parametrize(
    ("wire", "shards", "fitting"),
    [
        ("float32", 1, {*RULES}),
        ("bfloat16", 1, AVERAGING),
        ("int8", 1, AVERAGING),
        ("topk:0.1", 1, BY_WEIGHT | OF_DIFFERENCES),
        ("topk2bit:0.1", 1, OF_DIFFERENCES),
        ("float32", 2, BY_WEIGHT),
    ],
)
def test_rules_refuse_incompatible_wires_and_shards(
    wire: str, shards: int, fitting: set[str]
) -> None:
    for name in RULES:
        rule = make_rule(name)
        if name in fitting:
            require_fit(rule, wire, shards)
        else:
            with pytest.raises(ConfigError, match=f"rule '{name}'"):
                require_fit(rule, wire, shards)


def test_a_peer_refuses_a_rule_that_does_not_fit_its_wire() -> None:
    class Plain:
        name, registers, outstanding_max = "plain", (), 1
        step = GoSGD().step

    with pytest.raises(ConfigError, match=r"wire is 'topk:0\.25': rule 'plain' needs every number"):
        Scene(SPARSE).enter("a", rule=Plain())
