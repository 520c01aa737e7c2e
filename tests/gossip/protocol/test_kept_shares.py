"""A kept snapshot is pushed as the same bytes each time, until it is released."""

from dataclasses import replace
from functools import partial

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Combine, Release, Send, Snapshot
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.protocol.share import Kept
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ack, Ask, Offer, Push

from ..scene import SMALL, WIDE, Effects, Scene, only

ROUNDED = replace(SMALL, wire="int8")
BARE = Form("int8", bare=True)


def keeping_scene(
    config: ProtocolConfig = ROUNDED, *, keeps_anchor: bool = False, host: bytes = b""
) -> Scene:
    """Peers with rules that keep bare snapshots."""
    return Scene(config, Requirements(bare=True)).founded(
        *"abc", keeps_anchor=keeps_anchor, host=host
    )


def keep(scene: Scene, **options: bool) -> tuple[Kept, Effects]:
    found: list[Kept] = []
    effects = scene.act("a", lambda context: found.append(context.keep("y", "bc", **options)))
    return found[0], effects


def release(scene: Scene, kept: Kept) -> list[Release]:
    return only(scene.act("a", lambda context: context.let_go(kept)), Release)


def test_all_pushes_and_the_sender_read_one_snapshot() -> None:
    scene = keeping_scene()
    kept, effects = keep(scene, bare=True)
    assert only(effects, Snapshot) == [Snapshot(1, "y", BARE)] and kept == Kept(1, BARE)

    def push(peer: str, context: RuleContext) -> None:
        context.combine("y", [(1.0, "x"), (-0.5, kept.as_sent)])
        context.push(peer, 5, register=kept, round=7, note=3)

    for peer in "bcb":
        effects = scene.act("a", partial(push, peer))
        assert effects[0] == Combine("y", ((1.0, "x"), (-0.5, 1))) and not only(effects, Snapshot)
        (send,) = [e for e in only(effects, Send) if isinstance(e.envelope.body, Push)]
        (body,) = scene.sent(effects, Push)
        assert (send.snapshot, body.form, body.round, body.note) == (1, BARE, 7, 3)
        scene.deliver()
        scene.refuse_all(peer)
        scene.deliver()
        assert not scene.peers["a"].account.outstanding


def test_a_snapshot_let_go_is_released_after_its_last_share() -> None:
    scene = keeping_scene(replace(WIDE, wire="int8"))
    kept, _ = keep(scene, bare=True)
    scene.act("a", lambda context: context.push("b", 5, register=kept))
    assert len(scene.peers["a"].state.kept) == 1
    assert release(scene, kept) == [] and len(scene.peers["a"].state.kept) == 0
    # An offer that was not granted may be sent again, in full.
    scene.mail.clear()
    effects = scene.tell("b", "a", Ack(1, 0))
    assert only(effects, Release) == [Release(1)]


def test_an_unread_snapshot_is_released_at_once_and_only_once() -> None:
    scene = keeping_scene()
    kept, effects = keep(scene, bare=True)
    assert not only(effects, Release)
    assert release(scene, kept) == [Release(1)]
    with pytest.raises(LocalProtocolError, match="snapshot 1 is not kept"):
        release(scene, kept)


def test_a_leaver_releases_all_kept_snapshots() -> None:
    scene = keeping_scene()
    for _ in range(2):
        keep(scene, bare=True)
    assert len(scene.peers["a"].state.kept) == 2
    assert {Release(1), Release(2)} <= {*only(scene.leave("a"), Release)}
    assert len(scene.peers["a"].state.kept) == 0


@pytest.mark.parametrize(
    ("options", "keeps_anchor", "form"),
    [
        ({"bare": True}, True, BARE),
        ({"bare": True, "whole": True}, True, Form(bare=True)),
        ({}, True, Form("int8")),
        ({}, False, Form()),
        ({"whole": True}, True, Form()),
    ],
)
def test_a_kept_snapshot_has_the_requested_form(
    options: dict[str, bool], keeps_anchor: bool, form: Form
) -> None:
    scene = Scene(ROUNDED).founded("a", "b", "c", keeps_anchor=keeps_anchor)
    assert keep(scene, **options)[0].form == form


def test_models_travel_unconverted_under_a_rule_with_bare_shares() -> None:
    assert only(keeping_scene(keeps_anchor=True).push("a", "b"), Snapshot) == [Snapshot(1, "x")]


def test_frames_and_shared_memory_use_the_same_snapshot() -> None:
    scene = keeping_scene(replace(WIDE, wire="int8"), host=b"here")
    kept, effects = keep(scene, bare=True)
    assert only(effects, Snapshot) == [Snapshot(1, "y", BARE, shown=True)]
    effects = scene.act("a", lambda context: context.push("b", 5, register=kept))
    (send,) = [e for e in only(effects, Send) if isinstance(e.envelope.body, Offer)]
    assert (send.snapshot, send.shown) == (1, True)


@pytest.mark.parametrize("bare", [False, True])
def test_a_newcomer_asks_for_the_anchor_if_shares_refer_to_it(bare: bool) -> None:
    scene = Scene(ROUNDED, Requirements(whole=False, bare=bare)).founded(keeps_anchor=True)
    scene.join("z", "a")
    asks = scene.sent(scene.run_for(10.0, "z", "a", step_s=0.5), Ask)
    assert asks and all(ask.anchor is not bare for ask in asks)
