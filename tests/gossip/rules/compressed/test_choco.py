"""CHOCO-SGD: everybody counts the same q, in any format."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rumor.gossip.effects.effects import Combine, Effect
from rumor.gossip.effects.events import Event, ShareRefused
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.rules.compressed.choco import Choco
from rumor.gossip.types import PeerId
from rumor.gossip.wire.formats import Form
from rumor.sim.fuzz.peers import complete
from rumor.sim.kernel.worker import Worker

from ...crowd import CONFIG, Crowd
from ...scene import Scene, a_push


def choco(gamma: float = 0.3) -> Callable[[PeerId], Rule]:
    return lambda peer: Choco(gamma=gamma)


@pytest.mark.parametrize(
    ("wire", "gammas"),
    [("float32", [1.0, 1.0]), ("int8", [1.0, 1.0]), ("topk:0.25", [1.0, 0.5])],
)
def test_unless_it_is_given_gamma_suits_the_format(wire: str, gammas: list[float]) -> None:
    crowd = Crowd(lambda peer: Choco(), 3, complete, config=replace(CONFIG, wire=wire))
    taken = list[float]()

    def look(worker: Worker, effect: Effect | Event) -> None:
        if isinstance(effect, Combine) and effect.register == "x":
            taken.append(effect.terms[1][0])

    watched(crowd, look)
    crowd.run(20.0, steps=4)
    assert taken[:3] == [gammas[0]] * 3 and set(taken[3:]) == {gammas[1]}


def watched(crowd: Crowd, look: Callable[[Worker, Effect | Event], None]) -> None:
    """Look at each effect that was carried out."""
    carried = crowd.swarm.carried

    def both(worker: Worker, effect: Effect | Event) -> None:
        look(worker, effect)
        carried(worker, effect)

    crowd.swarm.carried = both  # type: ignore[method-assign]


def test_a_peer_that_was_told_another_format_is_named() -> None:
    scene = Scene(config=replace(CONFIG, wire="int8"))
    rule = Choco()
    scene.founded("a", "b", rules={"a": Choco(), "b": rule})
    for trained in (True, False):
        scene.step("a", trained=trained)
        scene.step("b", trained=trained)
        scene.deliver()
    scene.step("b")
    form = Form("float16", bare=True)
    size = form.size_bytes(scene.peers["b"].state.schema, 0)
    push = a_push(seq=7, size_bytes=size, form=form, epoch=1, round=1, step=1)
    scene.tell("a", "b", push, frame_bytes=size)
    effects = scene.step("b", trained=False)
    assert "is float16, and int8 here: give all peers the same wire" in str(effects[-1])


def test_a_difference_that_belongs_to_no_round_is_sent_back() -> None:
    scene = Scene().founded("a", "b", rules={peer: Choco() for peer in "ab"})
    form = Form(bare=True)
    push = a_push(form=form)
    scene.tell("a", "b", push, frame_bytes=64)
    effects = scene.step("b", trained=False)
    assert ShareRefused("a", "of a difference, and of no round") in effects
