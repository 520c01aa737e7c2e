"""EASGD ties models to centers, and the centers of all become one."""

import numpy as np
import pytest

from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.rules.asynchronous.elastic_averaging import EASGD
from rumor.gossip.weight import WEIGHT_MIN
from rumor.gossip.wire.messages import Ack, Push
from rumor.sim.fuzz.peers import complete

from ...crowd import LR, Crowd, gradient, starts
from ...scene import Scene


def test_a_center_with_hardly_any_weight_is_not_pushed() -> None:
    scene = Scene()
    scene.founded("a", "b", neighbors=complete, rules={peer: EASGD(every=1) for peer in "ab"})
    for _ in range(1100):
        effects = scene.step("a")
        if PushSkipped("too little weight") in effects:
            break
        scene.deliver(Push)
        scene.step("b", trained=False)
        scene.mail = type(scene.mail)(m for m in scene.mail if isinstance(m.body, Ack))
        scene.deliver()
    assert 0 < scene.peers["a"].account.weight < WEIGHT_MIN


@pytest.mark.parametrize(("alpha", "every"), [(0.5, 1), (0.9, 3), (1.0, 2), (0.0, 1)])
def test_alone_it_is_the_published_update(alpha: float, every: int) -> None:
    crowd = Crowd(lambda peer: EASGD(alpha=alpha, every=every), 1, complete)
    found = crowd.history(12)
    x = starts(1)[0]
    center = x.copy()
    for step in range(12):
        x = x - LR * gradient(0, x)
        if (step + 1) % every == 0:
            pull = alpha * (x - center)
            x, center = x - pull, center + pull
        np.testing.assert_allclose(found[step][0], x, rtol=0, atol=1e-12)


def test_mixing_centers_keeps_their_weighted_mean() -> None:
    """Where nobody is pulled, by hand: pushes and mixes alone."""
    crowd = Crowd(lambda peer: EASGD(alpha=0.0, every=1), 5, complete, descend=False, steps=30)
    crowd.swarm.run(3000.0, lambda: not crowd.swarm.running())
    np.testing.assert_allclose(
        crowd.models, starts(5).mean(axis=0)[None].repeat(5, 0), rtol=0, atol=1e-6
    )
