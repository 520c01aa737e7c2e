"""``joining``: how long newcomers take to become copies, next to formulas, and their memory."""

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import torch

from rumor.gossip import GoSGD, ProtocolConfig
from rumor.train import Peer, PeerConfig
from rumor.train.tensors.buffers import MemoryUse

from ..harness import Result, Row
from .processes import Flat, Partner, Pipe, partner, partners
from .raw import RawReceiver, RawSender

__all__ = ["Wire", "chain_s", "measure_joining", "tree_s", "turns_s"]

_log = logging.getLogger(__name__)

# The model, and shares on their way, in each process.
_VECTORS_PER_PEER: Final = 4
_OF_AVAILABLE: Final = 0.9
_JOIN_S_MAX: Final = 300.0
_SAMPLE_S: Final = 0.02
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Wire(NamedTuple):
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
    return math.ceil(math.log2(processes)) * (wire.start_s + size_bytes / wire.bytes_s)


def turns_s(processes: int, size_bytes: int, wire: Wire) -> float:
    """Seconds for one transfer after another; arguments as for `chain_s`.

    Where one transfer keeps all cores of a machine busy, no order of them takes less.
    """
    return (processes - 1) * (wire.start_s + size_bytes / wire.bytes_s)


_FORMULAS: Final = {
    "pipelined chunked chain": chain_s,
    "binomial tree": tree_s,
    "one after another": turns_s,
}


def measure_joining(
    joiners: tuple[int, ...] = (1, 4, 8),
    size_mb: float = 400.0,
    rounds: int = 2,
    step_s: float = 0.01,
    picture: str = "",
) -> Result:
    """Let several newcomers at once join a peer that trains.

    Args:
        joiners: How many, each time.
        size_mb: Size of the float32 model, 10**6 bytes; less where memory would not hold it in
            so many processes.
        rounds: How often each number joins; figures are medians.
        step_s: How long an optimizer step of who is in sleeps, seconds.
        picture: Where to draw memory by kind, of the donor and a newcomer, while the most of them
            join, as PNG; empty for nowhere.
    """
    torch.set_num_threads(1)
    size_bytes = _fitting(int(size_mb * 1e6), max(joiners) + 1) // 4 * 4
    n_params = size_bytes // 4
    wire = _measure_wire(n_params)
    rows: list[Row] = []
    traces: dict[str, dict[str, list[_Sample]]] = {}
    with partners(_serve, [(n_params, step_s)] * (max(joiners) + 1)) as (founder, *others):
        for one in (founder, *others):
            one.hear()
        for shared_memory in (True, False):
            way = "shared memory" if shared_memory else "TCP"
            for count in joiners:
                _log.info("joining: %d, %s", count, way)
                joined = [
                    _join(founder, others[:count], shared_memory=shared_memory)
                    for _ in range(rounds)
                ]
                rows.extend(_rows(f"{_joiners(count)}, {way}", joined, count + 1, size_bytes, wire))
                traces[way] = {"donor": joined[-1].donor, "newcomer": joined[-1].newcomers[0]}
    if picture:
        title = f"{_joiners(max(joiners))} become copies of {size_bytes / 1e6:g} MB"
        _draw(traces, title, Path(picture))
    return Result(
        name="joining",
        title=f"From the start of newcomers to the last one's being a copy of {size_bytes / 1e6:g} "
        "MB, while others train",
        rows=tuple(rows),
    )


def _joiners(count: int) -> str:
    return f"{count} {'joiners' if count > 1 else 'joiner'}"


class _Sample(NamedTuple):
    """What one peer has in memory at one time, in models."""

    time_s: float
    """Since newcomers started."""
    snapshots: float
    segments: float
    staged: float
    idle: float
    resident: float
    """Of its process, with the model, but without what it had before and what it keeps mapped of
    others. A segment of another counts for a moment when it is let go while it is read."""


class _Joined(NamedTuple):
    """What came of it when newcomers joined."""

    taken_s: float
    """Until the last of them was a copy."""
    donor: list[_Sample]
    newcomers: list[list[_Sample]]


def _rows(
    name: str, joined: Sequence[_Joined], processes: int, size_bytes: int, wire: Wire
) -> Iterator[Row]:
    about = f"each hop as plain pyzmq alone does it, t_s = {wire.start_s * 1e6:.0f} us, " + (
        f"B = {wire.bytes_s / 1e9:.4g} GB/s"
    )
    for formula, seconds in _FORMULAS.items():
        yield Row(
            name=f"{name}, {formula}",
            ours=median(each.taken_s for each in joined),
            reference=seconds(processes, size_bytes, wire),
            unit="s",
            note=f"formula; {about}",
        )
    of_each = {
        "the donor": [sample for each in joined for sample in each.donor],
        "a newcomer": [s for each in joined for samples in each.newcomers for s in samples],
    }
    for whose, samples in of_each.items():
        yield Row(
            name=f"{name}: memory of {whose} at its largest",
            ours=max((sample.resident for sample in samples), default=0.0),
            reference=1 + PeerConfig().memory_models,
            unit="models",
            note="limit of the settings; resident, its own model included",
        )


def _fitting(size_bytes: int, processes: int) -> int:
    """As much of the size as so many processes have room for."""
    if sys.platform != "linux":
        return size_bytes
    lines = Path("/proc/meminfo").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("MemAvailable:"))
    available_bytes = int(line.split()[1]) * 1024
    room = available_bytes * _OF_AVAILABLE / (processes * _VECTORS_PER_PEER)
    if size_bytes <= room:
        return size_bytes
    _log.warning("joining: %d MB instead of %d, for memory", room // 1e6, size_bytes // 1e6)
    # A round number, so that runs with nearly the same memory can be compared.
    return int(room // 1e7 * 1e7)


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
        [_Sample(each[0] - start_s, *each[1:]) for each in one.ask("leave")]
        for one in (*joiners, founder)
    ]
    return _Joined(float(max(joined_s)) - start_s, donor, newcomers)


def _serve(pipe: Pipe, n_params: int, step_s: float) -> None:
    # Of nine peers that leave one after another, each would have something to say.
    logging.getLogger("rumor").setLevel(logging.ERROR)
    before_bytes = _resident_bytes()
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
        trace = _Trace(made._vector.memory.use, before_bytes)
        with made as peer:
            pipe.send((time.monotonic(), peer.address))
            while not pipe.poll(step_s):
                peer.step()
            pipe.recv()
        samples = trace.stop()
        del made, peer, trace
        pipe.send(samples)


def _resident_bytes() -> int:
    """Memory of this process that is in use now; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


class _Trace:
    """Looks at a peer's memory from a thread of its own, until it is stopped.

    Args:
        use: Says what the peer holds.
        before_bytes: Resident memory of the process before it had a model.
    """

    def __init__(self, use: Callable[[], MemoryUse], before_bytes: int) -> None:
        self._use = use
        self._before_bytes = before_bytes
        self._samples: list[tuple[float, ...]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> list[tuple[float, ...]]:
        """Look no longer; fields of samples, in order, on the clock of `time.monotonic`."""
        self._stop.set()
        self._thread.join()
        return self._samples

    def _look(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            use = self._use()
            resident = _resident_bytes() - self._before_bytes
            parts = (use.snapshots_bytes, use.segments_bytes, use.staged_bytes, use.idle_bytes)
            models = [part / use.model_bytes for part in (*parts, resident)]
            self._samples.append((time.monotonic(), *models))


_KINDS: Final = {
    "snapshots": ("#0072B2", "shares that leave, in frames"),
    "segments": ("#56B4E9", "shares that leave, read where they lie"),
    "staged": ("#E69F00", "shares that come"),
    "idle": ("#BBBBBB", "idle buffers"),
}


def _draw(traces: Mapping[str, Mapping[str, Sequence[_Sample]]], title: str, path: Path) -> None:
    """Draw memory by kind over time: a column for each way, a row for each peer."""
    from matplotlib import rc_context

    from rumor.sim.results.plots import INK, STYLE, new_figure

    peers = list(next(iter(traces.values())))
    colors, labels = zip(*_KINDS.values(), strict=True)
    with rc_context(STYLE):
        figure = new_figure(8, 5.2, "constrained", dpi=110)
        grid = figure.subplots(len(peers), len(traces), sharey=True, squeeze=False)
        for column, (way, seen) in enumerate(traces.items()):
            for row, peer in enumerate(peers):
                axes, samples = grid[row][column], seen[peer]
                times_s = [sample.time_s for sample in samples]
                stacked = [[getattr(sample, kind) for sample in samples] for kind in _KINDS]
                axes.stackplot(times_s, stacked, colors=colors, labels=labels, step="post")
                resident = [sample.resident for sample in samples]
                axes.plot(times_s, resident, color=INK, linewidth=1.2, label="resident, with it")
                axes.set_title(f"{peer}, {way}")
                axes.set_ylim(bottom=0)
                axes.set_ylabel("models" if column == 0 else "")
            grid[-1][column].set_xlabel("seconds since newcomers started")
        handles, shown = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, shown, loc="outside lower center", ncols=3)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        figure.savefig(path)
