"""``joining-simulated``: join storms over links of limited bandwidth, beside two broadcasts.

The protocol of every peer runs, under virtual time, and no values are made: what a gigabyte of them
would take of a network is known from their sizes.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from ..gossip import GoSGD, ProtocolConfig, Schema, TensorSpec
from ..sim.fault_plan import given, names_of
from ..sim.fleet import Fleet
from ..sim.links import Links
from ..sim.neighborhood import LiveNeighborhood
from ..sim.network import NetworkConfig
from ..sim.pace import InTurn, make_pace
from ..sim.plan import FaultPlan, FleetPlan
from .joining import Wire, chain_s, tree_s, turns_s
from .machine import machine
from .result import Result, Row

__all__ = ["measure_joining_simulated", "storm_s"]

_log = logging.getLogger("rumor.benchmarks")

_START_S: Final = 5.0
_GIVE_UP_S: Final = 20_000.0
_LOOK_S: Final = 10.0


def measure_joining_simulated(
    joiners: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    size_mb: float = 200,
    bandwidth_mbit: float = 100,
    latency_s: float = 0.0005,
    step_s: float = 0.1,
) -> Result:
    """Let storms of newcomers join one peer that trains.

    Args:
        joiners: How many at once, each time.
        size_mb: Size of the float32 model, 10**6 bytes.
        bandwidth_mbit: Of each peer's uplink, 10**6 bits a second.
        latency_s: One way, seconds.
        step_s: How long an optimizer step takes, virtual seconds.
    """
    start_s = time.perf_counter()
    size_bytes = int(size_mb * 1e6) // 4 * 4
    wire = Wire(latency_s, bandwidth_mbit * 1e6 / 8)
    network = NetworkConfig(latency_s=latency_s, bandwidth_mbit=bandwidth_mbit)
    rows: list[Row] = []
    for count in joiners:
        taken_s = storm_s(count, size_bytes, network, step_s)
        _log.info("joining-simulated: %d joiners, %.1f s", count, taken_s)
        rows.extend(_rows(taken_s, count, size_bytes, wire))
    return Result(
        name="joining-simulated",
        title=f"Virtual time from the start of newcomers to the last one's being a copy of "
        f"{size_mb:g} MB, over uplinks of {bandwidth_mbit:g} Mbit/s",
        columns=("what", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


def storm_s(count: int, size_bytes: int, network: NetworkConfig, step_s: float) -> float:
    """Let so many newcomers start at once beside one peer, and say when the last has joined.

    Args:
        count: How many.
        size_bytes: Of the model, float32.
        network: What lies between them.
        step_s: How long an optimizer step takes.

    Returns:
        Virtual seconds from their start.

    Raises:
        RuntimeError: One has not joined after hours.
    """
    trouble = FaultPlan(
        faults=given([{"at_s": _START_S, "kind": "join", "count": count}]),
        founders=1,
        checkpoint_every_s=_GIVE_UP_S,
    )
    ids = names_of(1, trouble)
    plan = FleetPlan(
        ids=ids,
        schema=Schema((TensorSpec("x", (size_bytes // 4,), "float32"),)),
        anchor=bytes(16),
        # Nobody pushes: what joining takes is to be seen alone.
        rule=lambda: GoSGD(0.0),
        neighbors=LiveNeighborhood("complete", 0),
        pace=InTurn(make_pace("constant", ids=ids[:1], step_s=step_s, seed=0), 1),
        links=partial(Links, network, ids, 0),
        seed=0,
        steps=None,
        protocol=ProtocolConfig(shared_memory=False),
        trouble=trouble,
    )
    fleet = Fleet(plan)
    assert fleet.troubles is not None
    sightings = fleet.troubles.sightings
    while fleet.now < _GIVE_UP_S:
        fleet.run(fleet.now + _LOOK_S, 1 << 62)
        # Nobody carries it out: there are no values.
        fleet.program.take()
        taken_s = [arrival.admitted_s for arrival in sightings.arrivals]
        found = [one_s for one_s in taken_s if one_s is not None]
        if len(found) == count:
            return max(found)
    raise RuntimeError(f"not all of {count} newcomers have joined in {_GIVE_UP_S:g} virtual s")


def _rows(taken_s: float, count: int, size_bytes: int, wire: Wire) -> Iterator[Row]:
    formulas = {
        "tree": (tree_s, "binomial tree, ceil(log2 P)(t_s + M/B)"),
        "chain": (chain_s, "pipelined chunked chain, (C + P - 2)(t_s + M/(C B))"),
        "turns": (turns_s, "one after another, (P - 1)(t_s + M/B)"),
    }
    for short, (formula, long) in formulas.items():
        yield Row(
            name=f"{count} {'joiners' if count > 1 else 'joiner'}, beside {short}",
            ours=taken_s,
            reference=formula(count + 1, size_bytes, wire),
            unit="s",
            note=f"formula: {long}, t_s = {wire.start_s * 1e3:g} ms, "
            f"B = {wire.bytes_s / 1e6:g} MB/s",
        )
