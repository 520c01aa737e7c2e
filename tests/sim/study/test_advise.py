"""Advice: which candidates are tried, how they are ranked, and how they are described."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim.calibration import Calibration, PeerPace
from rumor.sim.models.network import Host, NetworkConfig, read_network
from rumor.sim.study.advise import Advice, Candidate, advise, slow_peers
from rumor.sim.study.execution.plan import StudyPlan
from rumor.sim.study.results import Result, Results

EVEN = (0.1, 0.1, 0.1, 0.1)


def fleet(*steps_s: float, **changes: Any) -> Calibration:
    peers = tuple(PeerPace(id=f"peer-{i}", step_s=s, steps=9) for i, s in enumerate(steps_s))
    given: dict[str, Any] = {
        "source": "x",
        "peers": peers,
        "settings": {"task": "quadratic", "steps": 20},
    }
    return Calibration(**given | changes)


def advice(
    tmp_path: Path, seconds: Callable[[str], float | None], peers: Calibration, **more: Any
) -> tuple[Advice, dict[str, list[str]]]:
    """Advice, and the candidates of each round: *seconds* is the time until a loss of 1, None if
    a candidate never reaches it."""
    rounds: dict[str, list[str]] = {}

    def result(plan: StudyPlan, at: int) -> Result:
        trial = plan.trials[at].trial
        ends_s = seconds(trial.group[0])
        spread = 1 + 0.02 * trial.seed + 0.002 * (at % 5)
        end_s = (ends_s or 5.0) * spread
        times = (0.0, 0.99 * end_s, end_s, 100.0)
        losses = (2.0, 2.0, 2.0, 1.5) if ends_s is None else (2.0, 1.9, 1.0, 0.95)
        series = {"time_s": times, "loss_median": losses, "bytes_sent": (0.0, 4e6, 5e6, 9e6)}
        return Result(trial=trial, key=str(at), summary={}, series=series, facts={}, wall_s=0.0)

    def compute(plan: StudyPlan, factor: str) -> Results:
        rounds[factor] = list(plan.study.axes[0].labels)
        found = tuple(result(plan, at) for at in range(len(plan.trials)))
        return Results(study=plan.study, results=found, failures={})

    return advise(peers, tmp_path, compute=compute, **more), rounds


@pytest.mark.extended
def test_topologies_then_wires_of_the_best_rule_are_tried(tmp_path: Path) -> None:
    def seconds(label: str) -> float:
        return 3.0 - 1.5 * ("p=0.5" in label) - 0.5 * ("torus" in label) - 0.5 * ("int8" in label)

    found, rounds = advice(tmp_path, seconds, fleet(*EVEN))
    assert "gosgd:p=0.5 on exponential" in rounds["rule"] and "sgp on exponential" in rounds["rule"]
    assert {*rounds["topology"]} - {*rounds["rule"]} == {
        "gosgd:p=0.5 on ring",
        "gosgd:p=0.5 on torus",
        "gosgd:p=0.5 on complete",
    }
    assert {*rounds["wire"]} - {*rounds["topology"]} == {
        "gosgd:p=0.5 on torus with bfloat16",
        "gosgd:p=0.5 on torus with int8",
    }
    assert found.best == Candidate(rule="gosgd:p=0.5", topology="torus", wire="int8")
    assert found.best.options == "--rule gosgd:p=0.5 --topology torus --wire int8"


@pytest.mark.extended
def test_each_factor_has_a_sentence(tmp_path: Path) -> None:
    def seconds(label: str) -> float | None:
        if label.startswith("diloco"):
            return None
        return 2.0 if label.startswith("gosgd:p=1 ") else 6.0 if "allreduce" in label else 3.0

    found, _ = advice(tmp_path, seconds, fleet(*EVEN))
    assert len(found.words) == 4
    first, rule, topology, wire = found.words
    assert first.startswith("First: gosgd:p=1 on ") and ", a loss of 1 after 2.0" in first
    assert "allreduce on complete takes 3 times as long (" in rule
    assert "diloco:h=20 on complete reaches it with 0 of 3 seeds" in rule
    assert len(re.findall(r"gosgd:p=\S+ on \S+ takes 1\.5 times as long \(", rule)) == 3
    assert topology.startswith("Topology: ") and topology.count("no significant difference") == 1
    assert sum(name in topology for name in ("ring", "torus", "exponential", "complete")) == 3
    assert wire.startswith("Wire: ") and "bfloat16" in wire


@pytest.mark.extended
def test_all_reduce_also_runs_without_a_slow_peer(tmp_path: Path) -> None:
    def seconds(label: str) -> float:
        return 1.0 if "fast peers" in label else 3.1 if "allreduce" in label else 2.0

    network = NetworkConfig(bandwidth_mbit=110, hosts=(Host(workers=("1",), bandwidth_mbit=100.0),))
    peers = fleet(0.5, 0.1, 0.1, 0.1, network=network)
    found, rounds = advice(tmp_path, seconds, peers)
    assert found.best is not None and found.best.is_without_slow
    assert "allreduce on complete takes 3." in found.words[1]
    trials = {t.group[0]: t.settings for t in found.results.study.trials()}
    left = trials["allreduce on complete (fast peers)"]
    assert (left["workers"], left["slow"]) == (3, ())
    assert read_network(left["network"]).hosts == (Host(workers=("0",), bandwidth_mbit=100.0),)
    assert trials["allreduce on complete"]["slow"] == ("0:5",)
    _, rounds = advice(tmp_path, seconds, fleet(*EVEN))
    assert not any("fast peers" in label for label in rounds["rule"])


def test_a_peer_behind_a_thin_uplink_is_slow() -> None:
    hosts = tuple(Host(workers=(str(i),), bandwidth_mbit=rate) for i, rate in ((0, 1e4), (3, 100)))
    network = NetworkConfig(bandwidth_mbit=1e4, hosts=hosts)
    assert slow_peers(fleet(*EVEN, network=network)) == (3,)
    assert slow_peers(fleet(*EVEN)) == ()


def test_an_unusable_candidate_is_reported_with_its_reason(tmp_path: Path) -> None:
    given = {"rule": "allreduce", "topology": "complete"}
    found, _ = advice(tmp_path, lambda _: 1.0, fleet(*EVEN), given=given)
    label = "allreduce on complete with int8"
    assert label in found.comparison.missing and "needs numbers as they are" in found.whys[label]
    with pytest.raises(ConfigError, match=r"no candidate can be used on these peers: .*numbers as"):
        advice(tmp_path, lambda _: 1.0, fleet(*EVEN), given=given | {"wire": "int8"})


@pytest.mark.parametrize(("rule", "labels"), [("gosgd", "0.02 0.1 0.5 1"), ("gosgd:p=0.3", "0.3")])
def test_given_settings_are_not_varied(tmp_path: Path, rule: str, labels: str) -> None:
    given = {"rule": rule, "topology": "ring", "wire": "int8"}
    _, rounds = advice(tmp_path, lambda _: 1.0, fleet(*EVEN), given=given)
    expected = [f"gosgd:p={p} on ring with int8" for p in labels.split()]
    assert rounds == {"rule": expected}


@pytest.mark.extended
def test_current_settings_are_a_candidate_and_total_steps_are_divided(tmp_path: Path) -> None:
    settings = {
        "task": "quadratic",
        "rule": "gosgd",
        "p": 0.3,
        "topology": "ring",
        "total_steps": 90,
        "eval_every": 50,
    }
    found, rounds = advice(tmp_path, lambda _: 1.0, fleet(*EVEN, settings=settings))
    assert "gosgd:p=0.3 on ring" in rounds["rule"]
    _, as_usual = advice(tmp_path, lambda _: 1.0, fleet(*EVEN, settings={"rule": "gosgd"}))
    assert not {"gosgd on exponential"} & {*as_usual["rule"]}
    trial = next(found.results.study.trials())
    assert trial.settings["steps"] == 23
    assert not {"total_steps", "eval_every", "p"} & trial.settings.keys()


def test_the_default_target_is_nearly_the_best_loss(tmp_path: Path) -> None:
    given = {"rule": "gosgd:p=0.3", "topology": "ring"}
    found, _ = advice(tmp_path, lambda _: 1.0, fleet(*EVEN), given=given)
    assert found.results.study.target == pytest.approx(2.0 - 0.95 * (2.0 - 0.95))
    found, _ = advice(tmp_path, lambda _: None, fleet(*EVEN), given=given, target=1.0)
    assert found.best is None and found.words == ()


@pytest.mark.extended
def test_a_task_without_a_loss_is_refused(tmp_path: Path) -> None:
    given = {"task": "consensus", "rule": "gosgd:p=0.5", "topology": "ring", "wire": "float32"}
    with pytest.raises(ConfigError, match="the task has no loss"):
        advise(fleet(*EVEN), tmp_path, given=given, seeds=1, jobs=1)
