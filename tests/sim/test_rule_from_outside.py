"""A rule that the package knows nothing of is named by a spec, with a parameter, and simulated."""

from typing import Any

from rumor.sim import Swarm, simulate

from ..gossip.test_rule_specs import EveryNth

MINE = f"{EveryNth.__module__}:EveryNth"


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
