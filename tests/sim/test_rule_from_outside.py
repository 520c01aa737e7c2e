"""A rule from outside the package is simulated by its spec, which may have a parameter."""

from typing import Any

from rumor.sim import Swarm, simulate

from ..gossip.test_rule_specs import EveryNth

CUSTOM = f"{EveryNth.__module__}:EveryNth"


def simulated(rule: str, **settings: Any) -> Any:
    return simulate(task="consensus", workers=6, topology="ring", steps=40, rule=rule, **settings)


def test_a_custom_rule_runs_in_the_simulator_by_its_spec() -> None:
    often, seldom = simulated(CUSTOM), simulated(f"{CUSTOM}:every=8")
    assert often.summary["rule"] == "every-nth"
    assert seldom.summary["rule_spec"] == f"{CUSTOM}:every=8"
    assert often.summary["pushes"] > 3 * seldom.summary["pushes"] > 0
    assert often.summary["weight_units_total"] == often.summary["weight_units_expected"]
    assert f"{CUSTOM}:every=8" in repr(seldom)


def test_a_swarm_accepts_the_spec_of_a_custom_rule() -> None:
    swarm = Swarm("quadratic", peers=3, rule=f"{CUSTOM}:every=1")
    swarm.run(2.0)
    assert swarm.finish() and swarm.audit().balanced


def test_parameters_in_the_spec_equal_separate_settings() -> None:
    spec, short = (
        simulated("gosgd:p=0.5,emission=adaptive"),
        simulated("gosgd:emission=adaptive", p=0.5),
    )
    assert spec.summary["digest"] == short.summary["digest"] != simulated("gosgd").summary["digest"]
    keys = ("rule", "rule_spec", "p", "emission")
    expected = ["gosgd", "gosgd:p=0.5,emission=adaptive", 0.5, "adaptive"]
    assert [spec.summary[key] for key in keys] == [short.summary[key] for key in keys] == expected
