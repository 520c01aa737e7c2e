"""The simulator beside a rival: rows, and what they say where a side cannot be run."""

import json
import logging
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from rumor.benchmarks import simulator as sim
from rumor.benchmarks.results import Result
from rumor.benchmarks.rivals.fleet import measure
from rumor.benchmarks.rivals.networks import HIDDEN, NETS, make
from rumor.benchmarks.rivals.rivals import Rival, RivalError
from rumor.benchmarks.simulator import measure_sim

__all__: list[str] = []

RATES = {"batched": 40.0, "loop": 4.0, "compiled": 80.0, "auto": 39.0}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mapping[str, Any]]]:
    """Both sides without processes: what was asked of which, in order."""
    calls: list[tuple[str, Mapping[str, Any]]] = []

    def run(command: list[str], **_: object) -> Any:
        given = json.loads(command[-1])
        is_compiled = given["compiled"] and given["engine"] == "batched"
        name = "compiled" if is_compiled else given["engine"]
        calls.append((name, given))
        found = figures(RATES[name] * given["threads"])
        digest = {"digest": "d", "why": "it pays"}
        line = json.dumps({**found, **digest, "whole_s": 2.0, "engine": given["engine"]})
        return type("Done", (), {"stdout": f"talk\n{line}\n".encode()})

    def rival(rival: Rival, script: str, given: Mapping[str, Any], *_: object) -> Mapping[str, Any]:
        with np.load(given["work"]) as arrays:
            shapes = {name: arrays[name].shape for name in arrays.files}
        calls.append(("rival", {**given, "shapes": shapes}))
        return {**figures(2.0), "engine": f"{rival.name} {rival.version}"}

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sim, "measure_rival", rival)
    return calls


def figures(rate: float) -> dict[str, Any]:
    return {"steps": 100, "wall_s": 100 / rate, "accuracy": 0.5, "loaded_mb": 9.0, "peak_mb": 12.0}


def small(**settings: Any) -> Result:
    return measure_sim(
        **{"sizes": [8], "nets": {"2.4 k": 80}, "others": {}, "rounds": 2, **settings}
    )


def test_every_way_stands_beside_the_rival_and_beside_our_loop(
    asked: list[tuple[str, Mapping[str, Any]]],
) -> None:
    result = small()
    assert [(row.name.removeprefix("2.4 k, n = 8: "), row.ratio) for row in result.rows] == [
        ("loop", 2.0),
        ("batched", 20.0),
        ("batched beside loop", 10.0),
        ("batched, compiled", 40.0),
        ("batched, compiled beside loop", 20.0),
        ("batched, 2 threads", 40.0),
        ("batched, 2 threads beside loop", 20.0),
        ("batched, compiled, 2 threads", 80.0),
        ("batched, compiled, 2 threads beside loop", 40.0),
        ("peak memory", 1.0),
        ("2.4 k, n = 8, p = 0.1: auto", 9.75),
    ]
    notes = {row.name.removeprefix("2.4 k, n = 8: "): row.note for row in result.rows}
    assert notes["batched"].startswith("gossipy-dfl 0.0.1; accuracy 0.500 and 0.500")
    assert notes["batched beside loop"] == "our loop; the same bits"


def test_other_bits_than_the_loops_are_told(
    asked: list[tuple[str, Mapping[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Callable[..., Any] = subprocess.run

    def other(command: list[str], **settings: object) -> Any:
        done = run(command, **settings)
        if json.loads(command[-1])["compiled"]:
            done.stdout = done.stdout.replace(b'"digest": "d"', b'"digest": "f"')
        return done

    monkeypatch.setattr(subprocess, "run", other)
    notes = {row.name.removeprefix("2.4 k, n = 8: "): row.note for row in small().rows}
    assert notes["batched beside loop"] == "our loop; the same bits"
    assert notes["batched, compiled beside loop"] == "our loop; other bits"


def test_ways_take_turns_and_both_sides_get_the_same_work(
    asked: list[tuple[str, Mapping[str, Any]]],
) -> None:
    small()
    turn = ["rival", "loop", "batched", "compiled", "batched", "compiled"]
    assert [name for name, _ in asked] == [*turn, *turn, "auto", "loop", "auto", "loop"]
    assert [given.get("p") for _, given in asked] == [*[None, *[1.0] * 5] * 2, *[0.1] * 4]
    theirs, ours = asked[0][1], asked[1][1]
    assert theirs["n"] == ours["workers"] == 8
    assert (theirs["rounds"], ours["steps"]) == (10, 40)
    assert theirs["batch_size"] == ours["batch_size"] == 32
    assert (theirs["threads"], ours["threads"], asked[4][1]["threads"]) == (1, 1, 2)
    assert theirs["lr"] == make("2.4 k").lr
    assert theirs["shapes"] == {
        "edges": (24, 2),
        "start": (2410,),
        "train_inputs": (1437, 64),
        "train_targets": (1437,),
        "test_inputs": (360, 64),
        "test_targets": (360,),
    }


def test_a_rival_that_fails_is_asked_once_and_its_rows_say_why(
    asked: list[tuple[str, Mapping[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def fail(*_: object) -> None:
        tries.append(1)
        raise RivalError("pip ended with status 1: no network")

    monkeypatch.setattr(sim, "measure_rival", fail)
    result = small()
    row = result.rows[0]
    assert len(tries) == 1
    assert (row.ours, row.reference, row.ratio) == (4.0, 0.0, 0.0)
    assert row.note == (
        "gossipy-dfl was not measured: pip ended with status 1: no network; accuracy 0.500"
    )
    assert result.rows[2].ratio == 10.0
    json.dumps(result.as_json(), allow_nan=False)


def test_an_engine_that_is_not_to_be_had_has_no_rows(
    asked: list[tuple[str, Mapping[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run: Callable[..., Any] = subprocess.run

    def without_numba(command: list[str], **settings: object) -> Any:
        if json.loads(command[-1])["compiled"]:
            return type("Done", (), {"stdout": b'{"failed": "there is none"}\n'})
        return run(command, **settings)

    monkeypatch.setattr(subprocess, "run", without_numba)
    with caplog.at_level(logging.INFO, "rumor.benchmarks"):
        names = [row.name for row in small().rows]
    assert not any("compiled" in name for name in names)
    assert "2.4 k, n = 8: no batched, compiled: there is none" in caplog.messages


def test_other_networks_are_held_against_the_loop_alone(
    asked: list[tuple[str, Mapping[str, Any]]],
) -> None:
    (row,) = small(nets={}, others={"LeNet": 3}, few=4).rows
    assert (row.name, row.ratio) == ("LeNet, n = 4: auto", 39.0 / 4.0)
    assert row.note == "our loop; auto took auto: it pays; the same bits"
    assert [name for name, _ in asked] == ["auto", "loop", "auto", "loop"]


@pytest.mark.parametrize(
    ("net", "n_params"),
    [
        *(("2.4 k", 2_410), ("80 k", 80_260), ("LayerNorm", 2_474), ("LeNet", 44_426)),
        *(("LeNet, BatchNorm", 44_470), ("ResNet-20", 271_994)),
    ],
)
def test_a_network_is_of_its_size_and_learns_from_its_inputs(net: str, n_params: int) -> None:
    task = make(net)
    torch.manual_seed(0)
    model = task.model()
    assert sum(parameter.numel() for parameter in model.parameters()) == n_params
    outputs = model(task.train[0][:2])
    assert outputs.shape == (2, 10)
    assert task.loss is not None
    loss = task.loss(outputs, task.train[1][:2])
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_networks_of_one_hidden_layer_are_among_all() -> None:
    assert set(HIDDEN) < set(NETS)


def test_one_measurement_of_ours_counts_all_steps_but_the_first_ones() -> None:
    found = json.loads(
        json.dumps(measure("2.4 k", workers=8, batch_size=8, steps=4, engine="batched", threads=1))
    )
    assert found["steps"] == 8 * 3
    assert 0 < found["wall_s"] and 0 < found["whole_s"]
    assert 0 <= found["accuracy"] <= 1
    assert 0 < found["loaded_mb"] <= found["peak_mb"]
    assert found["engine"] == "batched"


def test_engines_that_promise_the_same_bits_have_the_same_digest() -> None:
    found = [
        measure("2.4 k", workers=8, batch_size=8, steps=3, engine=engine, threads=1)["digest"]
        for engine in ("loop", "batched")
    ]
    assert found[0] == found[1]


def test_a_longer_run_is_timed_and_the_digest_is_of_the_one_that_was_asked_for() -> None:
    asked: Any = {"workers": 8, "batch_size": 8, "steps": 4, "engine": "batched", "threads": 1}
    short, long = (measure("2.4 k", longer=longer, **asked) for longer in (1, 3))
    assert long["steps"] == 8 * (3 * 4 - 1)
    assert all(short[name] == long[name] for name in ("digest", "accuracy"))


def test_an_engine_that_does_not_fit_says_why() -> None:
    found = measure("LeNet", workers=8, batch_size=8, steps=2, engine="warp", threads=1)
    assert list(found) == ["failed"] and "\n" not in found["failed"]


@pytest.mark.live
@pytest.mark.slow
def test_ours_runs_in_processes_of_its_own() -> None:
    result = measure_sim(nets={}, others={"2.4 k": 40}, few=8, rounds=1)
    assert result.name == "sim"
    (row,) = result.rows
    assert row.ours > 0 and row.reference > 0
    assert row.unit == "steps/s"
    assert row.note.startswith("our loop; auto took ") and row.note.endswith("the same bits")
