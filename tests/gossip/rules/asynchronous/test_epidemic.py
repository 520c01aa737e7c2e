"""Epidemic learning averages what has come, and goes on whoever comes and goes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rumor.gossip.effects.effects import Wait
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.rules.asynchronous.epidemic import Epidemic
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import complete, ring, spread
from rumor.sim.fuzz.swarm import CALM
from rumor.sim.fuzz.vector import Values

from ...crowd import BAD, CONFIG, LR, Crowd, gradient, starts

WEATHERS = pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])


class Logged(Epidemic):
    """What it sends, and whose models it takes in at once, is logged."""

    def __init__(self, me: PeerId, log: list[tuple[Any, ...]]) -> None:
        super().__init__(s=2)
        self._me, self._log = me, log

    def step(self, context: RuleContext) -> Wait | None:
        push = context.push

        def logged(peer: PeerId, *given: Any, **named: Any) -> None:
            push(peer, *given, **named)
            self._log.append(("push", self._me, peer))

        context.push = logged  # type: ignore[method-assign]
        came = [(share.sender, share.id.seq) for share in context.shares() if share.epoch]
        outcome = super().step(context)
        self._log.append(("mean", self._me, came))
        return outcome


@WEATHERS
def test_each_takes_the_mean_of_its_own_model_and_of_all_that_came(weather: NetworkConfig) -> None:
    log: list[tuple[Any, ...]] = []
    crowd = Crowd(lambda peer: Logged(peer, log), 6, ring, weather)
    crowd.on_step = lambda peer: log.append(("train", peer))
    crowd.run(100.0, steps=25)
    place = {peer: index for index, peer in enumerate(crowd.ids)}
    x, pushed = starts(6), dict[tuple[PeerId, PeerId], int]()
    under_way: dict[tuple[PeerId, PeerId, int], Values] = {}
    for what, peer, *rest in log:
        i = place[peer]
        if what == "train":
            x[i] -= LR * gradient(i, x[i])
        elif what == "push":
            (to,) = rest
            pushed[peer, to] = pushed.get((peer, to), 0) + 1
            under_way[peer, to, pushed[peer, to]] = x[i].copy()
        elif rest[0]:
            x[i] = np.mean([x[i], *(under_way[s, peer, n] for s, n in rest[0])], axis=0)
    np.testing.assert_allclose(crowd.models, x, rtol=0, atol=1e-12)
    # To two of all others, not of the ring's neighbors.
    assert len(pushed) == 6 * 5


@WEATHERS
def test_models_without_steps_come_together_and_nobody_waits(weather: NetworkConfig) -> None:
    crowd = Crowd(lambda peer: Epidemic(), 8, complete, weather, descend=False)
    crowd.run(500.0, steps=40)
    assert spread(crowd.hosts) < 1e-4 * np.ptp(starts(8), axis=0).max()
    assert not any(witnessed.waits for witnessed in crowd.rules.values())


MORTAL = replace(CONFIG, suspect_s=1.0, dead_s=3.0)


def test_it_goes_on_after_a_death_and_all_end_with_the_weight_that_is_left() -> None:
    crowd = Crowd(lambda peer: Epidemic(), 6, complete, BAD, steps=60, config=MORTAL)
    crowd.run(100.0, steps=10)
    crowd.crash("p03")
    crowd.swarm.run(3000.0, lambda: not crowd.swarm.running())
    assert not crowd.swarm.running()
    left = sum(host.ledger.weight for host in crowd.hosts if host.id != "p03")
    assert 4.9 * ONE < left <= 6 * ONE
