"""Each run compares its first window, and says who has decided."""

from typing import Any

import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim import Run, simulate
from rumor.sim.kernel.fast_path import choice
from rumor.sim.kernel.fast_path.choice import OtherProgramError, prove
from rumor.sim.kernel.fast_path.compiler import INTERPRETED, SPECIALIZED, can_compile
from rumor.sim.kernel.fast_path.decisions import exchanges

from .plans import plan_of


def run_of(decide: str, **settings: Any) -> Run:
    usual: dict[str, Any] = {"task": "consensus", "workers": 12, "p": 1.0, "steps": 40}
    return simulate(**usual | settings, decide=decide)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"task": "digits", "workers": 6, "steps": 12, "topology": "ring"},
        {"steps": None, "time_s": 3.0, "pace": "lognormal:cv=0.4"},
        {"window": 7, "threads": 2},
    ],
)
def test_no_bit_depends_on_who_decides(settings: dict[str, Any]) -> None:
    slow, fast = run_of("protocol", **settings), run_of("auto", **settings)
    assert slow.summary["decided"] == "the protocols"
    assert fast.summary["decided"] == "the fast path, interpreted"
    assert slow.summary["digest"] == fast.summary["digest"]
    assert slow.summary["bytes_sent"] == fast.summary["bytes_sent"]
    assert fast.summary["weight_units_total"] == fast.summary["weight_units_expected"]


@pytest.mark.compiled
@pytest.mark.skipif(not can_compile(), reason="numba is not installed")
def test_no_bit_depends_on_machine_code() -> None:
    # At speeds of their own, levels are far from the order of time.
    settings = {"task": "digits", "workers": 24, "steps": 20, "pace": "lognormal:cv=0.5"}
    slow, fast = run_of("protocol", **settings), run_of("compiled", **settings)
    assert fast.summary["decided"] == "the fast path, compiled"
    assert slow.summary["digest"] == fast.summary["digest"]


@pytest.mark.extended
@pytest.mark.parametrize("task", ["consensus", "digits"])
def test_a_run_goes_on_by_the_protocols_where_the_fast_path_cannot(task: str) -> None:
    settings: dict[str, Any] = {
        "task": task,
        "workers": 40,
        "topology": "complete",
        "latency_s": 4.0,
        "rule": "gosgd:outstanding_max=36",
        "steps": 45,
        "window": 300,
    }
    slow, fast = run_of("protocol", **settings), run_of("auto", **settings)
    assert fast.summary["decided"] == "the fast path, interpreted, then the protocols"
    assert slow.summary["digest"] == fast.summary["digest"]


@pytest.mark.parametrize("name", ["number_bytes", "_patience_s", "below"])
def test_another_decision_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(exchanges, name)
    monkeypatch.setattr(exchanges, name, lambda *given: right(*given) // 2)
    with pytest.raises(OtherProgramError, match="the protocols"):
        prove(plan_of(8, latency_s=0.4, topology="ring"), INTERPRETED, 10.0, 1000)


def test_the_same_decisions_are_none() -> None:
    prove(plan_of(8, latency_s=0.4), INTERPRETED, 10.0, 1000)
    prove(plan_of(60, latency_s=100.0, rule="gosgd:outstanding_max=50"), INTERPRETED, 90.0, 10**9)


def test_compiled_is_refused_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="cannot take this run: the rule is adpsgd"):
        run_of("compiled", rule="adpsgd", p=None)
    monkeypatch.setattr(choice, "can_compile", lambda: False)
    with pytest.raises(ConfigError, match="needs numba"):
        run_of("compiled")
    with pytest.raises(ConfigError, match="unknown decide 'quickly'"):
        run_of("quickly")


def test_machine_code_is_taken_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "can_compile", lambda: True)
    monkeypatch.setattr(choice, "compiled", lambda: "machine code")

    def chosen() -> list[object]:
        return [choice.choose_decider("auto", plan_of(8), n) for n in (None, 100, 10**5, 10**6)]

    assert chosen() == [INTERPRETED, INTERPRETED, SPECIALIZED, "machine code"]
    assert choice.choose_decider("auto", plan_of(8, rule="adpsgd"), 10**6) is None
    monkeypatch.setattr(choice, "can_compile", lambda: False)
    assert chosen() == [INTERPRETED, INTERPRETED, SPECIALIZED, SPECIALIZED]
