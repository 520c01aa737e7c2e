"""Names, and the benchmark of the protocol on something tiny; no timing is asserted."""

from rumor.benchmarks import BENCHMARKS, Row
from rumor.benchmarks.protocol import measure_protocol

from .checked import checked

__all__: list[str] = []


def test_names_are_those_of_the_results() -> None:
    assert list(BENCHMARKS) == [
        "protocol",
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


def test_a_ratio_to_nothing_is_zero() -> None:
    assert Row(name="x", ours=1.0, reference=0.0, unit="s").ratio == 0.0
