"""``joining``: how long newcomers take to become copies, beside two ways to broadcast."""

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import torch

from ...gossip import GoSGD, ProtocolConfig, Schema, TensorSpec
from ...sim.kernel.faults.files import faults_of
from ...sim.kernel.fleet import Fleet
from ...sim.kernel.plan import FaultPlan, FleetPlan, names_of
from ...sim.models.links import Links
from ...sim.models.network import NetworkConfig
from ...sim.models.step_time import InTurn, make_step_time
from ...sim.models.topology import LiveWorkerTopology
from ...train import Peer, PeerConfig
from ..exchange.processes import Flat, Partner, Pipe, partner, partners
from ..exchange.raw import RawReceiver, RawSender
from ..memory import MemoryTrace, Sample, available_bytes, draw_memory, resident_bytes
from ..results import Result, Row, print_drawn

__all__ = [
    "Wire",
    "chain_s",
    "measure_joining",
    "measure_joining_simulated",
    "report",
    "storm_s",
    "tree_s",
    "turns_s",
]


_log = logging.getLogger("rumor.benchmarks")

# The model, and shares on their way, in each process.
_VECTORS_PER_PEER: Final = 4
_OF_AVAILABLE: Final = 0.9
_JOIN_S_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class Wire:
    """What a plain transfer between two processes takes: ``t_s + size / B``."""

    start_s: float
    """t_s, seconds."""
    bytes_s: float
    """B, bytes per second."""


def chain_s(processes: int, size_bytes: int, wire: Wire) -> float:
    """Seconds to broadcast along a chain, in the number of chunks that is best.

    So many *processes*, at least 2, hold it in the end, the first included.

    Source: Awan et al. 2016, pipelined chunked chain.
    """
    best = math.sqrt((processes - 2) * size_bytes / (wire.bytes_s * wire.start_s))
    chunks = max(1, round(best))
    return (chunks + processes - 2) * (wire.start_s + size_bytes / (chunks * wire.bytes_s))


def tree_s(processes: int, size_bytes: int, wire: Wire) -> float:
    """Seconds to broadcast whole along a binomial tree; arguments as for `chain_s`."""
    rounds = math.ceil(math.log2(processes))
    return rounds * (wire.start_s + size_bytes / wire.bytes_s)


def turns_s(processes: int, size_bytes: int, wire: Wire) -> float:
    """Seconds for one transfer after another; arguments as for `chain_s`.

    Where one transfer keeps all cores of a machine busy, no order of them takes less.
    """
    return (processes - 1) * (wire.start_s + size_bytes / wire.bytes_s)


_Formulas = Mapping[str, tuple[Callable[[int, int, Wire], float], str]]

_HOP: Final = "each hop as plain pyzmq alone does it"
_MEASURED: Final[_Formulas] = {
    "chain": (chain_s, f"pipelined chunked chain, {_HOP}"),
    "tree": (tree_s, f"binomial tree, {_HOP}"),
    "turns": (turns_s, f"one after another, {_HOP}"),
}
_SIMULATED: Final[_Formulas] = {
    "tree": (tree_s, "binomial tree, ceil(log2 P)(t_s + M/B)"),
    "chain": (chain_s, "pipelined chunked chain, (C + P - 2)(t_s + M/(C B))"),
    "turns": (turns_s, "one after another, (P - 1)(t_s + M/B)"),
}


def measure_joining(
    joiners: Sequence[int] = (1, 4, 8),
    size_mb: float = 400,
    rounds: int = 2,
    step_s: float = 0.01,
    picture: Path | str | None = None,
) -> Result:
    """Let several newcomers at once join a peer that trains.

    Args:
        joiners: How many, each time.
        size_mb: Size of the float32 model, 10**6 bytes; less where memory would not hold it in
            so many processes.
        rounds: How often each number joins; figures are medians.
        step_s: How long an optimizer step of who is in sleeps, seconds.
        picture: Where to draw memory by kind, of the donor and a newcomer, while the most of them
            join, as PNG; None for nowhere.
    """
    torch.set_num_threads(1)
    size_bytes = _fitting(int(size_mb * 1e6), max(joiners) + 1) // 4 * 4
    wire = _measure_wire(size_bytes // 4)
    n_params = size_bytes // 4
    rows: list[Row] = []
    traces: dict[str, dict[str, list[Sample]]] = {}
    with partners(_serve, [(n_params, step_s)] * (max(joiners) + 1)) as (founder, *others):
        for one in (founder, *others):
            one.hear()
        for shared_memory in (True, False):
            for count in joiners:
                _log.info("joining: %d, shared memory: %s", count, shared_memory)
                joined = [
                    _join(founder, others[:count], shared_memory=shared_memory)
                    for _ in range(rounds)
                ]
                way = "shared memory" if shared_memory else "TCP"
                name, taken_s = f"{_joiners(count)}, {way}", median(each.taken_s for each in joined)
                rows.extend(_rows(name, taken_s, _MEASURED, (count + 1, size_bytes, wire)))
                rows.extend(_memory_rows(name, joined))
                traces[way] = {"donor": joined[-1].donor, "newcomer": joined[-1].newcomers[0]}
    if picture is not None:
        title = f"{_joiners(max(joiners))} become copies of {size_bytes / 1e6:g} MB"
        draw_memory(traces, title, Path(picture))
    return Result(
        name="joining",
        title=f"From the start of newcomers to the last one's being a copy of {size_bytes / 1e6:g} "
        "MB, while others train",
        rows=tuple(rows),
    )


def report(size_mb: float, picture: Path | str) -> None:
    """Let eight join, and print and draw what came of it; arguments as for `measure_joining`."""
    result = measure_joining((8,), size_mb, rounds=1, picture=picture)
    print_drawn(result, picture)


def _joiners(count: int) -> str:
    return f"{count} {'joiners' if count > 1 else 'joiner'}"


def _rows(
    name: str, taken_s: float, formulas: _Formulas, broadcast: tuple[int, int, Wire]
) -> Iterator[Row]:
    """One way to join beside ways to broadcast to as many processes."""
    wire = broadcast[-1]
    for short, (formula, note) in formulas.items():
        yield Row(
            name=f"{name}, beside {short}",
            ours=taken_s,
            reference=formula(*broadcast),
            unit="s",
            note=f"formula: {note}, t_s = {wire.start_s * 1e6:.0f} us, "
            f"B = {wire.bytes_s / 1e9:.4g} GB/s",
        )


def _fitting(size_bytes: int, processes: int) -> int:
    """As much of the size as so many processes have room for."""
    if sys.platform != "linux":
        return size_bytes
    room = available_bytes() * _OF_AVAILABLE / (processes * _VECTORS_PER_PEER)
    if size_bytes > room:
        _log.warning("joining: %d MB instead of %d, for memory", room // 1e6, size_bytes // 1e6)
    # A round number, so that runs with nearly the same memory can be compared.
    return size_bytes if size_bytes <= room else int(room // 1e7 * 1e7)


def _measure_wire(n_params: int, times: int = 5) -> Wire:
    """Two sizes, two unknowns."""
    start_s = _transfer_s(1, times)
    return Wire(start_s, n_params * 4 / max(1e-9, _transfer_s(n_params, times) - start_s))


def _transfer_s(n_params: int, times: int) -> float:
    with partner(_receive, n_params) as other, RawSender(n_params, other.hear()) as sender:
        # The first one fills buffers.
        return median([sender.send_to(other) for _ in range(times + 1)][1:])


def _receive(pipe: Pipe, n_params: int) -> None:
    with RawReceiver(n_params) as receiver:
        pipe.send(receiver.address)
        while pipe.recv() is not None:
            pipe.send(receiver.receive())


@dataclass(frozen=True, slots=True)
class _Joined:
    """What came of it when newcomers joined; times of samples count from their start."""

    taken_s: float
    """Until the last of them was a copy."""
    donor: list[Sample]
    newcomers: list[list[Sample]]


def _memory_rows(name: str, joined: Sequence[_Joined]) -> Iterator[Row]:
    """The most that anybody had in memory, from the start of the newcomers until it had left."""
    of_each = {
        "donor": [sample for each in joined for sample in each.donor],
        "newcomer": [s for each in joined for samples in each.newcomers for s in samples],
    }
    for whose, samples in of_each.items():
        most = max((sample.resident for sample in samples), default=0.0)
        counted = max((sample.counted for sample in samples), default=0.0)
        yield Row(
            name=f"{name}: memory of the {whose} at its largest",
            ours=most or 1 + counted,
            reference=1 + PeerConfig().memory_models,
            unit="models",
            note=f"resident, its own model included; shares on their way took {counted:.3g}",
        )


def _join(founder: Partner, joiners: Sequence[Partner], *, shared_memory: bool) -> _Joined:
    """Let newcomers join, and all leave."""
    founder.ask(((), shared_memory))
    _, address = founder.ask("start")
    # A peer's vector is laid out when it is made: that costs the same whoever joins.
    for one in joiners:
        one.say(((address,), shared_memory))
    for one in joiners:
        one.hear()
    start_s = time.monotonic()
    for one in joiners:
        one.say("start")
    joined_s = [one.hear(_JOIN_S_MAX)[0] for one in joiners]
    *newcomers, donor = [
        [Sample(each[0] - start_s, *each[1:]) for each in one.ask("leave")]
        for one in (*joiners, founder)
    ]
    return _Joined(float(max(joined_s)) - start_s, donor, newcomers)


def _serve(pipe: Pipe, n_params: int, step_s: float) -> None:
    # Of nine peers that leave one after another, each would have something to say.
    logging.getLogger("rumor").setLevel(logging.ERROR)
    before_bytes = resident_bytes()
    model = Flat(n_params)
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        join, shared_memory = asked
        config = PeerConfig(
            join=join,
            rule=GoSGD(0.0),
            linger_s=0,
            leave_s=0.5,
            protocol=ProtocolConfig(shared_memory=shared_memory),
        )
        made = Peer(model, config)
        pipe.send("made")
        pipe.recv()
        trace = MemoryTrace(made.memory, before_bytes)
        with made as peer:
            pipe.send((time.monotonic(), peer.address))
            while not pipe.poll(step_s):
                peer.step()
            pipe.recv()
        samples = [tuple(sample) for sample in trace.stop()]
        del made, peer, trace
        pipe.send(samples)


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
    size_bytes = int(size_mb * 1e6) // 4 * 4
    wire = Wire(latency_s, bandwidth_mbit * 1e6 / 8)
    network = NetworkConfig(latency_s=latency_s, bandwidth_mbit=bandwidth_mbit)
    rows: list[Row] = []
    for count in joiners:
        taken_s = storm_s(count, size_bytes, network, step_s)
        _log.info("joining-simulated: %d joiners, %.1f s", count, taken_s)
        rows.extend(_rows(_joiners(count), taken_s, _SIMULATED, (count + 1, size_bytes, wire)))
    return Result(
        name="joining-simulated",
        title=f"Virtual time from the start of newcomers to the last one's being a copy of "
        f"{size_mb:g} MB, over uplinks of {bandwidth_mbit:g} Mbit/s",
        rows=tuple(rows),
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
    fault_plan = FaultPlan(
        faults=faults_of([{"at_s": _START_S, "kind": "join", "count": count}]),
        founders=1,
        checkpoint_every_s=_GIVE_UP_S,
    )
    ids = names_of(1, fault_plan)
    plan = FleetPlan(
        ids=ids,
        schema=Schema((TensorSpec("x", (size_bytes // 4,), "float32"),)),
        anchor=bytes(16),
        # Nobody pushes: what joining takes is to be seen alone.
        rule=lambda: GoSGD(0.0),
        neighbors=LiveWorkerTopology("complete", 0),
        pace=InTurn(make_step_time("constant", ids=ids[:1], step_s=step_s, seed=0), 1),
        links=partial(Links, network, ids, 0),
        seed=0,
        steps=None,
        protocol=ProtocolConfig(shared_memory=False),
        fault_plan=fault_plan,
    )
    fleet = Fleet(plan)
    assert fleet.faults is not None
    detection_times = fleet.faults.detection_times
    while fleet.now < _GIVE_UP_S:
        fleet.run(fleet.now + _LOOK_S, 1 << 62)
        # Nobody carries it out: there are no values.
        fleet.program.take()
        taken_s = [arrival.admitted_s for arrival in detection_times.arrivals]
        found = [one_s for one_s in taken_s if one_s is not None]
        if len(found) == count:
            return max(found)
    raise RuntimeError(f"not all of {count} newcomers have joined in {_GIVE_UP_S:g} virtual s")
