"""Names, and the benchmark of the protocol on something tiny; no timing is asserted."""

from rumor.benchmarks import BENCHMARKS, Row
from rumor.benchmarks.protocol import measure_protocol
from rumor.benchmarks.receipts import measure_receipts

from .checked import checked

__all__: list[str] = []


def test_names_are_those_of_the_results() -> None:
    assert list(BENCHMARKS) == [
        "protocol",
        "receipts",
        "exchange",
        "stall",
        "straggler",
        "start",
        "memory",
        "control",
        "slow-link",
        "heartbeats",
        "joining",
        "joining-simulated",
        "membership",
        "topology",
        "sim",
        "netcheck",
        "soak",
        "storm",
    ]


def test_protocol_compares_swarms_with_the_smallest_and_the_codec_with_msgpack() -> None:
    result = checked(
        measure_protocol(
            swarm_sizes=(3, 6),
            crew_sizes=(4, 8),
            events_per_round=50,
            rounds=1,
            messages_per_round=30,
        )
    )
    assert result.name == "protocol"
    names = [row.name for row in result.rows]
    assert names[:6] == [
        "4 workers, pushing",
        "8 workers, pushing",
        "3 peers, pushing",
        "3 peers, gossiping",
        "6 peers, pushing",
        "6 peers, gossiping",
    ]
    assert result.rows[0].ratio == 1.0
    assert {row.unit for row in result.rows} == {"events/s", "us"}


def test_receipts_compares_a_swarm_that_signs_with_one_that_does_not() -> None:
    result = checked(measure_receipts(swarm_sizes=(2, 3), steps=20, rounds=1))
    assert result.name == "receipts"
    assert [row.name for row in result.rows] == [
        "a transfer among 2, checked by all before it",
        "a transfer among 2, checked by audits",
        "a transfer among 3, checked by all before it",
        "a transfer among 3, checked by audits",
        "of which two signatures and two checks",
    ]


def test_a_ratio_to_nothing_is_zero() -> None:
    assert Row(name="x", ours=1.0, reference=0.0, unit="s").ratio == 0.0
