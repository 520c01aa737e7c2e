"""Each run verifies its first window, and reports whether the fast path has decided."""

from typing import Any

import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim import Run, simulate
from rumor.sim.kernel.fast_path import choice, fleet
from rumor.sim.kernel.fast_path.choice import ScheduleMismatchError, verify_against_protocol

from .plans import plan_of


def run_of(decide: str, **settings: Any) -> Run:
    usual: dict[str, Any] = {"task": "consensus", "workers": 12, "p": 1.0, "steps": 40}
    return simulate(**usual | settings, decide=decide)


@pytest.mark.extended
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"task": "digits", "workers": 6, "steps": 12, "topology": "ring"},
        # With different speeds, levels are far from time order.
        {"task": "digits", "workers": 24, "steps": 20, "pace": "lognormal:cv=0.5"},
        {"steps": None, "time_s": 3.0, "pace": "lognormal:cv=0.4"},
        {"window": 7, "threads": 2},
        {"rule": "gosgd:emission=per-second", "p": 8.0},
        {"task": "digits", "wire": "int8", "rule": "sgp", "p": None, "steps": 12},
    ],
)
def test_fast_path_and_protocols_give_the_same_bits(settings: dict[str, Any]) -> None:
    slow, fast = run_of("protocol", **settings), run_of("compiled", **settings)
    assert slow.summary["decided"] == "the protocols"
    assert fast.summary["decided"] == "the fast path"
    assert slow.summary["digest"] == fast.summary["digest"]
    assert slow.summary["bytes_sent"] == fast.summary["bytes_sent"]
    assert fast.summary["weight_units_total"] == fast.summary["weight_units_expected"]


@pytest.mark.extended
@pytest.mark.parametrize("task", ["consensus", "digits"])
def test_a_run_continues_with_the_protocols_if_the_fast_path_cannot(task: str) -> None:
    settings: dict[str, Any] = {
        "task": task,
        "workers": 40,
        "topology": "complete",
        "latency_s": 4.0,
        "rule": "gosgd:outstanding_max=36",
        "steps": 45,
        "window": 300,
    }
    slow, fast = run_of("protocol", **settings), run_of("compiled", **settings)
    assert fast.summary["decided"] == "the fast path, then the protocols"
    assert slow.summary["digest"] == fast.summary["digest"]


@pytest.mark.parametrize("name", ["ack_bytes", "latency_s", "steps_each"])
def test_a_differing_decision_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = fleet._make_tables

    def make_wrong(*arguments: Any) -> Any:
        t = right(*arguments)
        return t._replace(**{name: 2 * getattr(t, name)})

    monkeypatch.setattr(fleet, "_make_tables", make_wrong)
    with pytest.raises(ScheduleMismatchError, match="the protocols"):
        verify_against_protocol(plan_of(8, latency_s=0.4, topology="ring"), 10.0, 1000)


@pytest.mark.extended
def test_identical_decisions_pass_verification() -> None:
    verify_against_protocol(plan_of(8, latency_s=0.4), 10.0, 1000)
    lost = plan_of(60, latency_s=100.0, rule="gosgd:outstanding_max=50")
    verify_against_protocol(lost, 90.0, 10**9)


def test_decide_compiled_is_refused_for_unsupported_rules() -> None:
    reports: list[object] = []
    with pytest.raises(ConfigError, match="cannot take this run: the rule is adpsgd"):
        run_of("compiled", rule="adpsgd", p=None, progress=reports.append)
    assert not reports
    with pytest.raises(ConfigError, match="decide is 'quickly': it must be"):
        run_of("quickly")


def test_auto_uses_the_fast_path_if_that_pays() -> None:
    plan = plan_of(8)
    assert [choice.takes_fast_path("auto", plan, n) for n in (100, 10**6)] == [False, True]
    assert choice.takes_fast_path("compiled", plan, 100)
    assert not choice.takes_fast_path("protocol", plan, 10**6)
    assert not choice.takes_fast_path("auto", plan_of(8, rule="adpsgd"), 10**6)


def test_the_fast_path_is_compiled_once() -> None:
    run_of("compiled")
    assert not choice.must_compile()
