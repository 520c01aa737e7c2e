"""Byzantine members of simulated swarms: what they send, to whom, and how they are counted."""

import json
from typing import Any

import numpy as np
import pytest

from rumor.gossip import ConfigError
from rumor.sim import Run, simulate
from rumor.sim.batched.vector_tasks import consensus
from rumor.train.faults.schedule import ATTACKS

VECTORS: dict[str, Any] = {
    "task": "consensus",
    "workers": 6,
    "topology": "complete",
    "steps": 40,
    "p": 0.5,
    "seed": 3,
}
MODELS: dict[str, Any] = VECTORS | {"task": "digits", "steps": 12, "batch_size": 8}


def attack(kind: str, *peers: int, **more: Any) -> dict[str, Any]:
    return {"at_s": 0, "kind": kind, "peers": list(peers or (4, 5)), **more}


def run(settings: dict[str, Any], *faults: dict[str, Any], **more: Any) -> Run:
    return simulate(**settings | more, faults=list(faults))


def test_byzantine_workers_are_not_counted() -> None:
    values = np.zeros((6, 3))
    values[4:] = 1e9

    found = run(VECTORS | {"task": consensus(values)}, attack("sign-flip", strength=1e-9), steps=1)
    assert found.summary["liars"] == ["peer-4", "peer-5"]
    assert found.series["members"].tolist() == [4] * len(found.series["members"])
    assert found.series["disagreement"][0] == 0
    assert found.workers["weight_units"][4:].tolist() == [0, 0]
    assert found.workers["weight_units"][:4].all()


@pytest.mark.extended
@pytest.mark.parametrize("kind", sorted(set(ATTACKS) - {"inflate"}))
@pytest.mark.parametrize("rule", ["gosgd", "dpsgd:robust=clip"])
def test_weight_is_exact_under_every_attack_on_values(kind: str, rule: str) -> None:
    if kind == "flood" and rule != "gosgd":
        pytest.skip("in rounds, no worker can push more often")
    p = 0.5 if rule == "gosgd" else None
    summary = run(VECTORS, attack(kind), rule=rule, p=p).summary
    assert summary["weight_units_total"] == summary["weight_units_expected"]
    assert summary["decided"] == "the protocols"


def test_inflated_weight_is_the_difference_of_the_totals() -> None:
    summary = run(VECTORS, attack("inflate", strength=3)).summary
    assert summary["weight_units_total"] > summary["weight_units_expected"]
    # The Byzantine workers' own ledgers are correct.
    assert summary["weight_total"] < 6 * 3**40


def test_a_flooder_pushes_more_often() -> None:
    plain = run(VECTORS, attack("far", 5, strength=1e-12))
    flooded = run(VECTORS, attack("far", 5, strength=1e-12), attack("flood", 5, strength=8))
    assert flooded.workers["pushes"][5] > 4 * plain.workers["pushes"][5]


def test_each_honest_receiver_gets_its_own_forgery_and_byzantine_receivers_none() -> None:
    """With dissensus of strength 1, a round of averaging leaves honest peers where they are."""
    values = np.random.default_rng(2).normal(size=(5, 4))

    settings = VECTORS | {"task": consensus(values), "workers": 5, "rule": "dpsgd", "p": None}
    found = run(settings, attack("dissensus", 3, 4, strength=1), steps=1)
    honest = values[:3]
    expected = np.square(honest - honest.mean(axis=0)).sum() / 4
    assert found.summary["disagreement"] == pytest.approx(expected)
    plain = simulate(**settings | {"steps": 1})
    assert plain.summary["disagreement"] < 1e-20


@pytest.mark.extended
@pytest.mark.parametrize("wire", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("settings", [VECTORS, MODELS], ids=["vectors", "models"])
def test_forgeries_work_in_any_format(wire: str, settings: dict[str, Any]) -> None:
    settings = settings | {"wire": wire, "shards": 1}
    plain = run(settings).summary["consensus_distance"]
    assert run(settings, attack("far", strength=300)).summary["consensus_distance"] > 2 * plain


def test_each_shard_is_forged_separately() -> None:
    settings = MODELS | {"shards": 4, "shards_per_push": 2}
    found = run(settings, attack("sign-flip"))
    assert found.summary["weight_units_total"] == found.summary["weight_units_expected"]
    assert found.summary["loss"] > run(settings).summary["loss"]


@pytest.mark.extended
@pytest.mark.parametrize("change", [{"window": 5}, {"threads": 2}, {"threads": 1}])
def test_window_and_threads_change_no_bit_of_an_attack(change: dict[str, Any]) -> None:
    faults = [attack("dissensus")]
    plain = run(MODELS, *faults, steps=6)
    assert run(MODELS, *faults, steps=6, **change).summary["digest"] == plain.summary["digest"]


@pytest.mark.extended
def test_an_attack_lasts_for_its_duration() -> None:
    forgery = attack("far", strength=1e6)
    late = run(VECTORS, forgery | {"at_s": 1000.0})
    assert late.workers["pushes"].tolist() == run(VECTORS).workers["pushes"].tolist()
    assert late.summary["consensus_distance"] < 1
    assert run(VECTORS, forgery | {"for_s": 0.05}).summary["digest"] == late.summary["digest"]
    brief, long = (run(VECTORS, attack("flood", for_s=for_s)) for for_s in (1.0, 1000.0))
    assert brief.workers["pushes"][5] < long.workers["pushes"][5] / 2


@pytest.mark.extended
def test_attacks_combine_with_other_faults() -> None:
    crash = {"at_s": 2.0, "kind": "crash", "peer": 0}
    join = {"at_s": 1.0, "kind": "join"}
    found = run(VECTORS, crash, join, attack("sign-flip"), attack("flood"), steps=60)
    assert found.summary["crashes"] == 1 and found.summary["joins"] == 1
    assert len(found.summary["faults"]) == 4
    assert found.series["members"][-1] == 4
    json.dumps(found.summary)


@pytest.mark.parametrize(
    ("settings", "faults", "message"),
    [
        ({}, [attack("far", *range(6))], "all 6 peers attack: at least one must be honest"),
        ({}, [attack("alie", 1, 2, 3, 4)], "alie needs a strength where 4 of 6 lie"),
        ({"rule": "dpsgd", "p": None}, [attack("flood")], "rule 'dpsgd' does not let anybody"),
        ({"wire": "topk:0.1"}, [attack("far")], "far forges models, and rule 'gosgd' with wire"),
        (
            {"rule": "gradient-tracking", "p": None},
            [attack("ipm")],
            "ipm forges models, and rule 'gradient-tracking'",
        ),
        ({}, [attack("far", strength=0)], "it must be above 0"),
    ],
)
def test_impossible_attacks_are_refused(
    settings: dict[str, Any], faults: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(VECTORS | settings, *faults)
