"""Each benchmark that needs other processes runs on something tiny; no timing is asserted."""

import signal
import time
from pathlib import Path

import pytest

from rumor.benchmarks.exchange.exchange import Way, measure_exchange
from rumor.benchmarks.exchange.processes import Pipe, partner
from rumor.benchmarks.exchange.stall import measure_stall, measure_straggler
from rumor.benchmarks.memory import measure_memory
from rumor.benchmarks.network import control, heartbeats, slow_link
from rumor.benchmarks.network.control import measure_control
from rumor.benchmarks.network.hosts import HostsError
from rumor.benchmarks.network.slow_link import measure_slow_link
from rumor.benchmarks.rivals.rivals import Rival
from rumor.benchmarks.swarm.joining import measure_joining

from .checked import checked

__all__: list[str] = []

pytestmark = pytest.mark.live


@pytest.mark.extended
def test_exchange_pushes_into_another_process_and_compares_with_three_limits() -> None:
    result = checked(measure_exchange(sizes_mb=(1.5,), rounds=1, ways=(Way(name="TCP"),)))
    assert [row.name for row in result.rows] == [
        *(f"1.5 MB, TCP, beside raw {way}" for way in ("plain", "pipelined", "held")),
        "1.5 MB, TCP, beside memcpy",
        "1.5 MB, TCP, beside lerp",
        *(f"1.5 MB, TCP, processor, beside raw {way}" for way in ("plain", "pipelined", "held")),
    ]


@pytest.mark.extended
def test_stall_steps_with_a_neighbor_and_says_which_rival_was_not_to_be_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    nobody = Rival(name="tortoise", version="7")
    result = measure_stall(
        sizes=(100_000,),
        ps=(1.0,),
        step_s=0.002,
        steps=5,
        rounds=1,
        rivals=(nobody,),
        cache=tmp_path,
    )
    ours, theirs = result.rows[:3], result.rows[3:]
    assert [row.unit for row in ours] == ["ms", "ms", "steps/s"]
    assert "shares mixed" in ours[2].note
    assert all(row.reference > 0 for row in ours)
    assert [row.unit for row in theirs] == ["ms", "ms", "steps/s"]
    for row in theirs:
        assert row.ratio == row.reference == 0 < row.ours
        assert "tortoise was not measured: pip ended with status 1" in row.note


@pytest.mark.slow
def test_straggler_holds_a_fleet_against_a_barrier() -> None:
    result = measure_straggler(
        peers=2, slowdown=2.0, step_s=0.005, n_params=1000, burst_s=0.1, rounds=1
    )
    assert [row.name for row in checked(result).rows] == [
        "rumor, p = 0.1",
        "torch DDP over gloo",
        "rumor beside DDP",
        "rumor, the fast ones",
        "rumor, the slow one",
    ]


@pytest.mark.slow
def test_memory_pushes_toward_the_dead_and_kills_one_that_trains() -> None:
    result = measure_memory(
        size_mb=0.4,
        pushes=30,
        peers=2,
        step_s=0.002,
        watch_s=0.5,
        deaths={"killed": (signal.SIGKILL, False)},
    )
    grown, *pauses = result.rows
    assert grown.unit == "MB" and grown.reference > 0
    assert [row.unit for row in pauses] == ["ms"] * 3
    assert all(row.ours > 0 and row.reference > 0 for row in pauses)


@pytest.mark.slow
def test_joining_makes_copies_over_either_way(tmp_path: Path) -> None:
    picture = tmp_path / "joining.png"
    result = checked(measure_joining(joiners=(1,), size_mb=1, rounds=1, picture=picture))
    assert [row.name for row in result.rows] == [
        f"1 joiner, {way}{what}"
        for way in ("shared memory", "TCP")
        for what in (
            *(f", beside {formula}" for formula in ("chain", "tree", "turns")),
            *(f": memory of the {whose} at its largest" for whose in ("donor", "newcomer")),
        )
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_control_times_hellos_on_a_slow_link() -> None:
    result = measure_control(link_mb_s=50, size_mb=5, times=1, idle_s=0.3, bulk_mib=1, pings=1)
    if result.rows[0].name == "not measured":
        pytest.skip(result.rows[0].note)
    assert [row.unit for row in checked(result).rows] == ["ms"] * 4 + ["MB/s"]


def test_where_no_cable_can_be_laid_a_row_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(n: int, rate_bytes_s: float) -> None:
        raise HostsError("out of wire")

    monkeypatch.setattr(control, "hosts", refuse)
    (row,) = measure_control().rows
    assert (row.name, row.note, row.ratio) == ("not measured", "out of wire", 0)


@pytest.mark.slow
def test_slow_link_trains_four_peers_on_hosts() -> None:
    result = measure_slow_link(n_params=20_000, wires=("int8",), p=0.5, step_s=0.02, train_s=1.0)
    if result.rows[0].name == "not measured":
        pytest.skip(result.rows[0].note)
    sent, kept, datagram = checked(result).rows
    assert [sent.unit, kept.unit, datagram.unit] == ["MB/s", "of 1", "ms"]
    assert 0 < sent.ours < sent.reference and 0 < kept.ours <= 1


def test_without_slow_cables_a_row_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(n: int, rate_bytes_s: float) -> None:
        raise HostsError("out of wire")

    monkeypatch.setattr(slow_link, "hosts", refuse)
    (row,) = measure_slow_link().rows
    assert (row.name, row.note, row.ratio) == ("not measured", "out of wire", 0)


def echo(pipe: Pipe) -> None:
    while (words := pipe.recv()) is not None:
        pipe.send(words)


def test_a_partner_answers_until_it_is_killed() -> None:
    with partner(echo) as other:
        assert other.ask("hello") == "hello"
        other.kill()
        started_s = time.monotonic()
        with pytest.raises(TimeoutError, match="has ended"):
            other.hear(60)
        assert time.monotonic() - started_s < 60


def test_an_age_lasts_from_a_heartbeat_to_the_coming_of_the_next_new_one() -> None:
    made = [(1, 0.0), (2, 0.2), (3, 0.4), (4, 0.6)]
    # The third never came, and an old one came late; the last was nobody's.
    arrivals = [(1, 0.1), (2, 0.3), (1, 0.5), (4, 0.9), (9, 1.0)]
    assert heartbeats.ages_of(made, arrivals, 0.0, 2.0) == pytest.approx([0.3, 0.7])
    assert heartbeats.ages_of(made, arrivals, 0.5, 2.0) == pytest.approx([0.7])
    assert heartbeats.ages_of(made, [], 0.0, 2.0) == []


@pytest.mark.slow
def test_heartbeats_are_timed_while_a_model_crosses_a_cable() -> None:
    result = heartbeats.measure_heartbeats(link_mbit_s=100, size_mb=2, quiet_s=2)
    if result.rows[0].name == "not measured":
        pytest.skip(result.rows[0].note)
    crossed, *ages = checked(result).rows
    assert crossed.ours > crossed.reference and "2.0 MB came" in crossed.note
    assert [row.unit for row in ages] == ["s"] * 3


def test_without_namespaces_heartbeats_have_a_row_that_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(n: int, rate_bytes_s: float) -> None:
        raise HostsError("out of wire")

    monkeypatch.setattr(heartbeats, "hosts", refuse)
    (row,) = heartbeats.measure_heartbeats().rows
    assert (row.name, row.note, row.ratio) == ("not measured", "out of wire", 0)
