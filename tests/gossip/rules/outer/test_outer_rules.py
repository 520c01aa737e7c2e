"""How fast rules with outer rounds agree, and their defaults."""

import numpy as np
import pytest

from rumor.gossip.rules.outer.diloco import DiLoCo
from rumor.gossip.rules.outer.neighbors import GASLoC, NoLoCo
from rumor.sim.fuzz.peers import complete

from ...crowd import BAD, LR, Crowd, gradient, starts

H = 3


N = 7


def test_by_default_they_are_as_published() -> None:
    diloco, noloco = DiLoCo(), NoLoCo()
    assert (diloco.h, diloco.lr, diloco.momentum) == (50, 0.7, 0.9)
    assert (noloco.h, noloco.lr, noloco.momentum, noloco.gamma) == (50, 0.7, 0.5, 1.0)


@pytest.mark.extended
@pytest.mark.parametrize(("lr", "mu"), [(0.7, 0.9), (0.4, 0.9), (1.0, 0.5), (1.2, 0.9)])
def test_what_diloco_models_differ_by_shrinks_geometrically(lr: float, mu: float) -> None:
    """Whatever the peers have begun with, and whatever they learn."""
    crowd = Crowd(lambda peer: DiLoCo(h=H, lr=lr, momentum=mu), N, complete, BAD)
    models = crowd.history(30 * H)[H - 1 :: H]
    e = np.ptp(models, axis=1).max(axis=1)
    step = np.array([[1 - lr * (1 + mu), -lr * mu**2], [1.0, mu]])
    radius = np.abs(np.linalg.eigvals(step)).max()
    assert radius < 1
    # The power of such a map may be some times larger than that of its radius.
    assert e[-1] < 30 * radius ** (len(e) - 1) * e[0] + 1e-12
    if (lr, mu) == (0.7, 0.9):
        assert radius == pytest.approx((mu * (1 - lr)) ** 0.5) == pytest.approx(0.52, abs=0.001)


def test_peers_may_differ_in_their_number_of_local_steps() -> None:
    """A partner with more of them is waited for; equal rounds are averaged."""
    steps = {"p00": 2, "p01": 5}
    crowd = Crowd(lambda peer: GASLoC(h=steps[peer], eta=1.0, gamma=0.0), 2, complete)
    crowd.run(100.0, steps=20)
    x = starts(2)
    for round in range(4):
        ends = []
        for place, peer in enumerate(crowd.ids):
            row = x[place]
            for _ in range(steps[peer]):
                row = row - LR * gradient(place, row)
            ends.append(row)
        x = np.tile(np.mean(ends, axis=0), (2, 1))
        for place, peer in enumerate(crowd.ids):
            after = crowd.before[peer][steps[peer] * (round + 1)]
            np.testing.assert_allclose(after, x[place], rtol=0, atol=1e-12)
