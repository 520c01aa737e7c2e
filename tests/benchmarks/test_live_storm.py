"""A storm over three real peers of a tiny task, whole: no timing is asserted."""

import json
from pathlib import Path

import pytest

from rumor.benchmarks.swarm.storm.storm import measure_storm
from rumor.sim.kernel.faults.files import read_faults

__all__: list[str] = []

pytestmark = [pytest.mark.live, pytest.mark.slow]

FAULTS = [
    {"at_s": 2.0, "kind": "crash", "peer": 1},
    {"at_s": 2.5, "kind": "restart", "peer": 1, "state": "kept"},
    {"at_s": 4.0, "kind": "pause", "peer": 2, "for_s": 0.5},
    {"at_s": 5.0, "kind": "partition", "groups": [[0]], "for_s": 1.0},
]


def test_a_storm_is_calibrated_predicted_done_and_held_against_one_process(tmp_path: Path) -> None:
    faults, out = tmp_path / "faults.json", tmp_path / "out"
    faults.write_text(json.dumps(FAULTS))
    result = measure_storm(0.2, 3, "digits", faults=faults, out=out, rivals=())
    rows = {row.name: row for row in result.rows}
    assert list(rows) == [
        *("members taking part", "the same, of the alive", "longest pause of a survivor"),
        *("the same, in seconds", "victim steps again, median", "victim steps again, worst"),
        *("the same, beside", "time for all steps", "loss of the merged model"),
        *("loss, equal steps", "loss, all steps in turn", "weight in all ledgers"),
    ]
    assert all(row.ours > 0 and row.reference > 0 for row in result.rows)
    assert 2 < rows["members taking part"].ours + rows["members taking part"].reference <= 6
    assert "exact, ==" in rows["weight in all ledgers"].note
    assert rows["weight in all ledgers"].ratio == 1
    assert "1 crash, 1 partition, 1 pause, 1 restart" in rows["time for all steps"].note
    assert read_faults(out / "faults.json") == read_faults(faults)
    prediction = json.loads((out / "prediction.json").read_text())
    live = json.loads((out / "live" / "summary.json").read_text())
    assert live["total_steps"] == prediction["total_steps"]
    first = (out / "live" / "peers" / "peer-0" / "metrics.jsonl").read_text().splitlines()[0]
    assert prediction["unix_s"] < json.loads(first)["unix_s"], "predicted before anybody stepped"
