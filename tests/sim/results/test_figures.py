"""Rows that describe the faults of a simulation."""

from typing import Any

from rumor.sim.results.figures import describe_faults

from ...faults import fault

SUMMARY: dict[str, Any] = {
    "faults": [fault(1.0, "crash", "a"), fault(2.0, "join")],
    "faults_after_end": 0,
    "crashes": 1,
    "detect_s_first": 30.0,
    "detect_s_last": 31.5,
    "undetected": 0,
    "joins": 1,
    "join_s_median": 0.5,
    "join_s_most": 0.75,
    "joins_failed": 0,
    "restarts": 0,
    "restart_s_median": None,
    "restart_s_most": None,
    "restarts_failed": 0,
    "heal_s": None,
    "unhealed": 0,
    "accuracy_of_groups": None,
    "stranded": [],
    "weight_units_died": 2**39,
    "weight_units_burned": 2**38,
    "weight_expected": 4.0,
    "weight_units_expected": 2**42,
    "membership_bytes_s": 1234.0,
}


def rows(**changes: Any) -> dict[str, tuple[str, str]]:
    return {name: (value, words) for name, value, words in describe_faults(SUMMARY | changes)}


def test_a_run_without_faults_has_no_rows_about_faults() -> None:
    assert rows(faults=[]) == rows(faults=None) == {}
    assert not list(describe_faults({}))


def test_crashes_joins_and_lost_weight_have_a_row_each() -> None:
    found = rows()
    assert list(found) == ["faults", "crashes", "joins", "weight lost", "membership"]
    assert found["faults"] == ("2", "crash, join")
    assert "after 30 s, the last after 31.5 s" in found["crashes"][1]
    assert "0.5 s (median), 0.75 s at most" in found["joins"][1]
    assert found["weight lost"][0] == "0.75"
    assert found["membership"][0] == "1.23 kB/s"


def test_undetected_crashes_and_failed_joins_are_reported() -> None:
    found = rows(
        **dict.fromkeys(("faults_after_end", "undetected", "joins_failed", "unhealed"), 1),
        **dict.fromkeys(("detect_s_first", "detect_s_last", "join_s_median", "join_s_most")),
        stranded=[f"peer-{k}" for k in range(7)],
        weight_units_died=0,
        weight_units_burned=0,
    )
    assert "1 of them after the end of the run" in found["faults"][1]
    assert found["crashes"][1] == "no survivor has noticed"
    assert "none was admitted" in found["joins"][1]
    assert found["healed"][0] == "no"
    stranded, whom = found["stranded"]
    assert stranded == "7" and "peer-4 and 2 more: found no swarm" in whom
    assert "weight lost" not in found


def test_partial_detection_and_groups_of_a_partition_are_reported() -> None:
    found = rows(detect_s_last=None, undetected=2, joins_failed=3, heal_s=2.0)
    assert "not all noticed; 2 not noticed by all" in found["crashes"][1]
    assert "; 3 never" in found["joins"][1] and found["healed after"][0] == "2 s"
    assert rows(accuracy_of_groups=[0.75, 0.5])["before healing"][0] == "0.7500 and 0.5000"
