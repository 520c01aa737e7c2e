"""A rule that the package knows nothing of is named by a spec, with a parameter, and simulated."""

from typing import Annotated, Any

import pytest

from rumor.gossip import ConfigError, Parameter, RuleContext, checked
from rumor.gossip.effects.effects import Wait
from rumor.gossip.protocol.rule import Requirements
from rumor.sim import SimulationConfig, Swarm, simulate


class EveryNth:
    """Push half of the weight after every so many steps."""

    name = "every-nth"
    registers: tuple[str, ...] = ()
    outstanding_max = 2
    requirements = Requirements(whole=False)

    @checked
    def __init__(
        self, every: Annotated[int, Parameter("steps from push to push.", low=1)] = 2
    ) -> None:
        self.every = every
        self._steps = 0

    def step(self, turn: RuleContext) -> Wait | None:
        """Push where it is time, and mix all that came."""
        self._steps += turn.trained
        if turn.merging or (turn.trained and self._steps % self.every == 0):
            turn.push_half()
        for share in turn.shares():
            turn.mix(share)
        return None


MINE = f"{__name__}:EveryNth"


def ran(rule: str, **settings: Any) -> Any:
    return simulate(task="consensus", workers=6, topology="ring", steps=40, rule=rule, **settings)


def test_a_rule_from_outside_runs_in_the_simulator_by_its_spec() -> None:
    often, seldom = ran(MINE), ran(f"{MINE}:every=8")
    assert often.summary["rule"] == "every-nth"
    assert seldom.summary["rule_spec"] == f"{MINE}:every=8"
    assert often.summary["pushes"] > 3 * seldom.summary["pushes"] > 0
    assert often.summary["weight_units_total"] == often.summary["weight_units_expected"]
    assert "every-nth with every = 8" in repr(seldom)


def test_a_swarm_takes_the_spec_as_well() -> None:
    swarm = Swarm("quadratic", peers=3, rule=f"{MINE}:every=1")
    swarm.run(2.0)
    assert swarm.finish() and swarm.audit().balanced


def test_p_in_the_spec_is_p_next_to_it() -> None:
    spec, short = ran("gosgd:p=0.5,emission=adaptive"), ran("gosgd", p=0.5, emission="adaptive")
    assert spec.summary["digest"] == short.summary["digest"] != ran("gosgd").summary["digest"]
    keys = ("rule", "rule_spec", "p", "emission")
    told = ["gosgd", "gosgd:p=0.5,emission=adaptive", 0.5, "adaptive"]
    assert [spec.summary[key] for key in keys] == [short.summary[key] for key in keys] == told


@pytest.mark.parametrize("rule", ["nope", f"{MINE}:every=0", "sgp:p=1"])
def test_a_spec_is_checked_before_anything_is_made(rule: str) -> None:
    with pytest.raises(ConfigError):
        SimulationConfig(rule=rule)
