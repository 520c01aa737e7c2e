"""GoSGD: the number of pushes by steps, time, samples and delay."""

from collections.abc import Sequence
from typing import Any

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.rule import require_samples, requirements_of
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.rules.asynchronous.sgp import SGP
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import Peers
from rumor.sim.fuzz.swarm import FuzzSwarm

from ...scene import Scene, only


def pushes(rule: GoSGD, *, steps: int, step_s: float, samples: Sequence[int | None] = ()) -> int:
    """Return the number of due pushes at a peer without push targets."""
    scene, skipped = Scene(), 0
    scene.enter("a", rule=rule)
    scene.join("a")
    for step in range(steps):
        scene.wait(step_s)
        step_samples = samples[step % len(samples)] if samples else None
        skipped += len(only(scene.step("a", samples=step_samples), PushSkipped))
    return skipped


def test_the_number_of_pushes_follows_the_steps_in_per_step_mode() -> None:
    assert pushes(GoSGD(0.0), steps=50, step_s=1.0) == 0
    assert pushes(GoSGD(1.0), steps=50, step_s=9.0) == 50
    assert abs(pushes(GoSGD(0.3), steps=1000, step_s=1.0) - 300) < 4 * 15
    # The same holds for adaptive emission, if answers arrive at once.
    adaptive, plain = (
        pushes(GoSGD(0.3, emission=emission), steps=500, step_s=1.0)
        for emission in ("adaptive", "per-step")
    )
    assert adaptive == plain


def test_the_number_of_pushes_follows_the_time_in_per_second_mode() -> None:
    for steps in (10, 1000):
        due = pushes(GoSGD(3.0, emission="per-second"), steps=steps, step_s=100 / steps)
        assert abs(due - 300) < 6 * 18


@pytest.mark.parametrize(
    ("p", "emission", "samples", "steps", "expected", "spread"),
    [
        # p refers to 32 samples: after a step of 8, four times as many pushes are due; three fit.
        (0.6, "per-step", [8], 500, 1200, 4 * 15),
        (0.4, "per-second", [128], 2000, 200, 4 * 15),
        (0.4, "adaptive", [16], 500, 400, 4 * 15),
        (0.4, "per-step", [32], 500, 200, 4 * 11),
        # Without a number of samples, p is unchanged.
        (0.4, "per-step", [None], 500, 200, 4 * 11),
        # If the number of samples changes from step to step, its mean counts.
        (0.5, "per-step", [96, 32], 2000, 500, 4 * 20),
    ],
)
def test_pushes_are_due_in_proportion_to_samples(
    p: float, emission: Any, samples: list[int | None], steps: int, expected: int, spread: int
) -> None:
    rule = GoSGD(p, emission=emission, samples=32)
    assert abs(pushes(rule, steps=steps, step_s=1.0, samples=samples) - expected) < spread


def test_samples_are_needed_only_if_the_rule_uses_them() -> None:
    assert requirements_of(GoSGD(samples=32)).by_samples
    assert not requirements_of(GoSGD()).by_samples
    with pytest.raises(ConfigError, match="samples is -1"):
        GoSGD(samples=-1)
    require_samples(GoSGD(), None)
    require_samples(GoSGD(samples=8), 8)
    for rule, samples, message in (
        (GoSGD(), 8, "does not weigh steps by them"),
        (GoSGD(samples=8), None, "say how many each took"),
        (GoSGD(samples=8), 0, "at least 1"),
        (SGP(), 8, "rule 'sgp' does not weigh"),
    ):
        with pytest.raises(ConfigError, match=message):
            require_samples(rule, samples)


def adaptive_pushes(delay_s: float) -> int:
    """Return the pushes of two peers in 250 steps of 1 s if a message takes *delay_s*."""
    rules = {peer: GoSGD(0.5, emission="adaptive") for peer in ("a", "b")}
    peers = Peers(rule=rules.__getitem__, step_s=lambda peer: 1.0)
    swarm = FuzzSwarm(0, peers, tuple(rules), 2, NetworkConfig(latency_s=delay_s, jitter=1.0))
    swarm.run(250.0)
    return sum(sum(seq for seq, _ in host.ledger.decided.values()) for host in swarm.running())


def test_a_peer_pushes_at_every_step_once_all_have_finished() -> None:
    scene = Scene(ProtocolConfig(merge_rounds=5))
    scene.enter("a", rule=GoSGD(0.0))
    scene.join("a")
    scene.finish("a")
    assert PushSkipped("no neighbor free") in scene.step("a", trained=False)


def test_adaptive_emission_falls_with_the_latency_of_shares() -> None:
    near, far = adaptive_pushes(0.01), adaptive_pushes(2.0)
    assert far < near / 3
