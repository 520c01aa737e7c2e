"""Fault schedules: reading, checking against a run, and writing."""

import json
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.train.faults.schedule import (
    KINDS,
    LIVE_KINDS,
    Fault,
    Slowness,
    faults_as_json,
    read_faults,
    resolve,
)

PEERS = ("ann", "bob", "7")

FIELDS: dict[str, Any] = {
    "peer": "bob",
    "to": "7",
    "peers": [0, "bob"],
    "groups": [[0, "bob"], ["7"]],
    "for_s": 2.5,
    "factor": 4,
    "by_s": 3600,
    "rate": 1,
    "every_s": 0.2,
    "count": 12,
    "state": "lost",
    "one_way": True,
    "after": 3,
    "accepting": True,
    "strength": 1e6,
}


def read(*entries: object) -> tuple[Fault, ...]:
    return read_faults(json.dumps(entries))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_round_trips_through_reading_and_writing(kind: str) -> None:
    entry = {"at_s": 3.0, "kind": kind} | {name: FIELDS[name] for name in KINDS[kind].takes}
    faults = read(entry)
    resolve(faults, PEERS)
    assert faults_as_json(faults) == [entry]


def test_faults_are_sorted_by_time_and_ties_keep_file_order() -> None:
    faults = read(
        {"at_s": 3, "kind": "heal"},
        {"at_s": 1, "kind": "leave", "peer": 0},
        {"at_s": 1, "kind": "crash", "peer": 0},
    )
    assert [fault.kind for fault in faults] == ["leave", "crash", "heal"]


def test_a_schedule_is_read_from_a_valid_file_only(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_faults(path)
    path.write_text('[{"at_s": 1, "kind": "join", "count": null}]', encoding="utf-8")
    assert read_faults(path) == read_faults(str(path)) == (Fault(at_s=1, kind="join"),)
    for content, message in (
        (b'{"at_s": 1}', "must be a list of faults"),
        (b"[\xff]", r"faults.json is not JSON: .* codec can't decode"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            read_faults(path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("crash", "fault 2 is 'crash': it must be an object"),
        ({"kind": "heal"}, "fault 2 (heal) needs at_s: at least 0"),
        ({"at_s": 1}, "fault 2 needs kind: one of crash, restart, "),
        ({"at_s": 1, "kind": "crush"}, "unknown kind 'crush', did you mean 'crash'? Kinds are"),
        ({"at_s": 1, "kind": ["crash"]}, "unknown kind ['crash']"),
        ({"at_s": -1, "kind": "heal"}, "fault 2 (heal): at_s is -1: it must be at least 0"),
        ({"at_s": 1, "kind": "crash"}, "fault 2 (crash) needs peer: a peer's name, or its index"),
        ({"at_s": 1, "kind": "heal", "peer": 0}, "(heal) takes no 'peer'; its fields are at_s, "),
        ({"at_s": 1, "kind": "crash", "peer": -1}, "peer is -1: it must be a peer's name"),
        ({"at_s": 1, "kind": "crash", "peer": ""}, "peer is '': it must be a peer"),
        ({"at_s": 1, "kind": "crash", "peer": True}, "peer is True: it must be a peer"),
        ({"at_s": 1, "kind": "crash", "peer": 0, "after": 1.5}, "after is 1.5: it must be an int"),
        ({"at_s": 1, "kind": "loss", "rate": 1.5}, "rate is 1.5: it must be in [0, 1]"),
        ({"at_s": 1, "kind": "loss", "rate": "all"}, "rate is 'all': it must be a number"),
        ({"at_s": 1, "kind": "slow", "peer": 0, "factor": 0}, "factor is 0: it must be above 0"),
        ({"at_s": 1, "kind": "pause", "peer": 0, "for_s": 1e999}, "Infinity is not a finite"),
        ({"at_s": 1, "kind": "join", "count": 0}, "count is 0: it must be an integer in [1, "),
        ({"at_s": 1, "kind": "restart", "peer": 0, "state": "new"}, "it must be kept or lost"),
        ({"at_s": 1, "kind": "cut", "peer": 0, "one_way": 1}, "one_way is 1: it must be true or"),
        ({"at_s": 1, "kind": "partition", "groups": []}, "groups is []: it must be a list of lis"),
        ({"at_s": 1, "kind": "partition", "groups": [[0], []]}, "groups is [[0], []]: it must be"),
        ({"at_s": 1, "kind": "mass-restart", "for_s": 1, "peers": 3}, "peers is 3: it must be a l"),
    ],
)  # fmt: skip
def test_an_invalid_fault_is_refused_with_its_number_and_a_remedy(
    entry: object, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read({"at_s": 0, "kind": "heal"}, entry)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{]", "it is not JSON: Expecting .* line 1 column 3"),
        ('[{"at_s": 1, "at_s": 2, "kind": "heal"}]', "at_s is given twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_faults(text)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"at_s": 1, "kind": "crash", "peer": 3}, "fault 2: peer 3 is not a peer's index in this "
         "run: they are 0 to 2"),
        ({"at_s": 1, "kind": "crash", "peer": "bobby"}, "'bobby' is not a peer of this run, "
         "did you "),
        ({"at_s": 1, "kind": "cut", "peer": 0, "to": "x"}, "to 'x' is not a peer of this run; "
         "the "),
        ({"at_s": 1, "kind": "cut", "peer": 0, "to": "ann"}, "to is 'ann', the peer itself"),
        ({"at_s": 1, "kind": "partition", "groups": [[0], ["ann"]]}, "groups have 'ann' twice"),
        ({"at_s": 1, "kind": "mass-restart", "for_s": 1, "peers": [9]}, "peers 9 is not a peer's"),
        ({"at_s": 1, "kind": "crash", "peer": "join-3"}, "'join-3' is not a peer of this run"),
    ],
)  # fmt: skip
def test_faults_with_invalid_peers_are_refused(entry: object, message: str) -> None:
    # The second row sorts first by time, but messages number it by its place in the file.
    faults = read({"at_s": 2, "kind": "join", "count": 2}, entry)
    with pytest.raises(ConfigError) as caught:
        resolve(faults, PEERS)
    assert message in str(caught.value)


def test_faults_may_name_newcomers_but_too_many_joins_are_refused() -> None:
    join = {"at_s": 1, "kind": "join", "count": 2}
    resolve(read(join, {"at_s": 2, "kind": "crash", "peer": "join-2"}), PEERS)
    with pytest.raises(ConfigError, match=r"count is 100000000: it must be an integer in \[1,"):
        read(join | {"count": 100_000_000})
    joins = read(*[join | {"at_s": at_s, "count": 60_000} for at_s in (1, 2)])
    with pytest.raises(ConfigError, match=r"120,000 peers are to join: there may be 100,000"):
        resolve(joins, PEERS)


def test_a_fault_kind_that_a_command_does_not_support_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fault 1: diverge cannot be done here\. What can"):
        resolve(read({"at_s": 1, "kind": "diverge", "peer": 0}), PEERS, LIVE_KINDS)


def test_faults_created_in_code_are_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"fault 1 \(loss\): rate is 2: it must be in \[0, 1\]"):
        resolve([Fault(at_s=0, kind="loss", rate=2)], PEERS)


def test_resolve_replaces_indices_and_keeps_numeric_names() -> None:
    faults = read(
        {"at_s": 0, "kind": "cut", "peer": 0, "to": "7"},
        {"at_s": 1, "kind": "partition", "groups": [[0, 1], [2]]},
        {"at_s": 2, "kind": "mass-restart", "for_s": 1, "peers": [2]},
    )
    cut, partition, restart = resolve(faults, PEERS)
    assert (cut.peer, cut.to) == ("ann", "7")
    assert partition.groups == (("ann", "bob"), ("7",))
    assert restart.peers == ("7",)


def test_the_largest_active_slowness_factor_applies() -> None:
    slowness = Slowness()
    three, five = slowness.begin("a", 3.0), slowness.begin("a", 5.0)
    assert (slowness.of("a"), slowness.of("b")) == (5.0, 1.0)
    slowness.end("a", five)
    slowness.end("a", five)
    assert slowness.of("a") == 3.0
    slowness.end("b", three)
    slowness.end("a", three)
    assert slowness.of("a") == 1.0
    slowness.begin("a", 0.5)
    assert slowness.of("a") == 0.5


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "faults.md"

with_docs = pytest.mark.skipif(not PAGE.exists(), reason="needs the docs")


@with_docs
def test_the_table_in_the_docs_matches_the_fault_kinds() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, kind in KINDS.items():
        needs, may = (", ".join(f"`{field}`" for field in part) for part in (kind.needs, kind.may))
        live = "yes" if name in LIVE_KINDS else ""
        assert f"| `{name}` | {needs} | {may} | {live} | {kind.help} |" in page
    table = page.split("<!-- kinds:")[1].split("<!-- end of kinds -->")[0]
    assert table.count("\n| `") == len(KINDS)


@with_docs
def test_the_schedule_in_the_docs_is_valid() -> None:
    page = PAGE.read_text(encoding="utf-8")
    example = page.split("```json\n")[1].split("```")[0]
    faults = read_faults(example)
    resolve(faults, ["a", "b", "c", "d"])
    assert len(faults) == 4
