"""Learning rates follow the steps of the swarm, or those of the peer."""

import math

import pytest

from rumor.gossip import ConfigError
from rumor.train.config import RunConfig
from rumor.train.loop.learner import Learner
from rumor.train.tasks.lr_schedule import LrSchedule, parse_lr_schedule

WARMUP = {0.0: 0.01, 0.1: 0.5, 0.2: 1.0}


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("linear", {0.0: 1.0, 0.25: 0.75, 1.0: 0.0, 2.0: 0.0}),
        (
            "cosine:floor=0.2",
            {0.0: 1.0, 0.25: 0.6 + 0.4 * math.cos(math.pi / 4), 0.5: 0.6, 1.0: 0.2, 3.0: 0.2},
        ),
        # Warmup starts above 0, since nothing moves at a rate of 0.
        ("constant:warmup=0.2", WARMUP),
        ("cosine:warmup=0.2", WARMUP),
        ("linear:warmup=0.2", WARMUP),
    ],
)
def test_the_rate_follows_the_schedule(text: str, factors: dict[float, float]) -> None:
    schedule = parse_lr_schedule(text)
    assert {at: schedule.factor(at) for at in factors} == pytest.approx(factors)
    assert not schedule.is_constant


def test_the_default_schedule_is_constant() -> None:
    assert parse_lr_schedule("constant") == LrSchedule() and LrSchedule().is_constant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step", "unknown lr_schedule 'step'. Valid names: constant, cosine, linear"),
        ("cosine:gamma=1", "it takes warmup="),
        ("constant:floor=0.1", "it takes warmup="),
        ("cosine:warmup=1", r"in \[0, 1\)"),
        ("linear:floor=2", r"in \[0, 1\]"),
        ("linear:floor=nan", r"in \[0, 1\]"),
    ],
)
def test_an_invalid_schedule_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig(lr_schedule=text)


@pytest.mark.parametrize(
    ("total_steps", "expected"), [(100, [1.0, 0.5, 0.25, 0.0]), (None, [1.0, 0.75, 0.5, 0.25])]
)
def test_rates_follow_swarm_steps_if_limited_and_own_steps_otherwise(
    total_steps: int | None, expected: list[float]
) -> None:
    config = RunConfig(lr=1.0, total_steps=total_steps, steps=4, lr_schedule="linear")
    learner, found = Learner(config, "a"), []
    for steps in (0, 50, 75, 200):
        learner.step(swarm_steps=steps)
        found.append(learner.lr)
    assert found == expected


@pytest.mark.parametrize(
    ("config", "taken", "swarm_steps", "is_done"),
    [
        (RunConfig(steps=3), 2, 99, False),
        (RunConfig(steps=3), 3, 0, True),
        (RunConfig(total_steps=50), 10**6, 49, False),
        (RunConfig(total_steps=50), 0, 50, True),
        (RunConfig(total_steps=50, steps=3), 3, 4, True),
        (RunConfig(), 0, 10**9, False),
    ],
)
def test_a_peer_stops_after_its_own_or_the_swarms_steps(
    config: RunConfig, taken: int, swarm_steps: int, is_done: bool
) -> None:
    learner = Learner(config, "a")
    learner.taken = taken
    assert learner.is_done(swarm_steps) is is_done
