"""``memory``: what a dead neighbor costs the living, beside a plain socket."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import torch
import zmq

from ..gossip import ONE, GoSGD, ProtocolConfig, RuleContext
from ..train import Peer, PeerConfig
from ..train.tensors.buffers import MemoryUse
from .exchange.processes import Flat, Pipe, partner, partners
from .exchange.stall import Burst, sleeping
from .results import Result, Row, percentile

__all__ = [
    "DEATHS",
    "Aimed",
    "Death",
    "MemoryTrace",
    "Sample",
    "available_bytes",
    "draw_memory",
    "fitting",
    "measure_memory",
    "resident_bytes",
]

_log = logging.getLogger("rumor.benchmarks")

_WEIGHT: Final = ONE >> 20
_WARM_PUSHES: Final = 10
_STEP_S: Final = 0.002
_PATIENCE_S: Final = 300.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

Death = tuple[signal.Signals, bool]
"""The signal that brings it about, and whether shares went through shared memory."""

DEATHS: Final[Mapping[str, Death]] = {
    "killed, TCP": (signal.SIGKILL, False),
    "killed, shared memory": (signal.SIGKILL, True),
    "stopped with its connections open, TCP": (signal.SIGSTOP, False),
}
"""Ways for a neighbor to fall silent; a stopped one's connections stay open, and nobody reads."""


def measure_memory(
    size_mb: float = 4,
    pushes: int = 1000,
    peers: int = 4,
    p: float = 0.1,
    step_s: float = 0.01,
    watch_s: float = 10.0,
    deaths: Mapping[str, Death] = DEATHS,
) -> Result:
    """Push toward a neighbor that is dead, and kill one of several that train.

    Args:
        size_mb: Size of the float32 vector, 10**6 bytes.
        pushes: Due toward the dead neighbor.
        peers: How many train, of which one is killed.
        p: Probability of a push at a step of theirs.
        step_s: How long their optimizer steps sleep, seconds.
        watch_s: How long they are watched before the kill, and after.
        deaths: Ways for the neighbor to fall silent, toward which pushes are due.
    """
    size_bytes = int(size_mb * 1e6) // 4 * 4
    rows: list[Row] = []
    # Resident memory is read from the Linux kernel's own files.
    if sys.platform == "linux":
        rows.extend(_dead_neighbor(size_bytes, pushes, deaths))
    rows.extend(_kill(peers, size_bytes // 4, p, step_s, watch_s))
    return Result(
        name="memory",
        title=f"What a dead neighbor costs the living; vectors of {size_mb:g} MB",
        rows=tuple(rows),
    )


def available_bytes() -> int:
    """Memory that the system could still give."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


def fitting(pushes: int, size_bytes: int, available: int) -> int:
    """As many pushes as take half of the available memory at most."""
    return max(1, min(pushes, available // 2 // size_bytes))


def resident_bytes() -> int:
    """Memory of this process that is in use now; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


class Sample(NamedTuple):
    """What one peer has in memory at one time, in models."""

    time_s: float
    """On the clock of `time.monotonic`."""
    snapshots: float
    segments: float
    staged: float
    idle: float
    resident: float
    """Of its process, with the model, but without what it had before and what it keeps mapped of
    others. A segment of another counts for a moment when it is let go while it is read."""

    @property
    def counted(self) -> float:
        """All kinds together."""
        return self.snapshots + self.segments + self.staged + self.idle


_SAMPLE_S: Final = 0.02

_KINDS: Final = {
    "snapshots": ("#0072B2", "shares that leave, in frames"),
    "segments": ("#56B4E9", "shares that leave, read where they lie"),
    "staged": ("#E69F00", "shares that come"),
    "idle": ("#BBBBBB", "idle buffers"),
}


class MemoryTrace:
    """Looks at a peer's memory from a thread of its own, until it is stopped.

    Args:
        use: Says what the peer holds.
        before_bytes: Resident memory of the process before it had a model.
    """

    def __init__(self, use: Callable[[], MemoryUse], before_bytes: int) -> None:
        self._use = use
        self._before_bytes = before_bytes
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> list[Sample]:
        """Look no longer; returns what was seen, in order."""
        self._stop.set()
        self._thread.join()
        return self._samples

    def _look(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            use = self._use()
            resident = resident_bytes() - self._before_bytes - use.attached_bytes
            parts = (use.snapshots_bytes, use.segments_bytes, use.staged_bytes, use.idle_bytes)
            models = [part / use.model_bytes for part in (*parts, resident)]
            self._samples.append(Sample(time.monotonic(), *models))


def draw_memory(
    traces: Mapping[str, Mapping[str, Sequence[Sample]]], title: str, path: Path
) -> None:
    """Draw memory by kind over time.

    Args:
        traces: By way of exchange, a column each, and by peer, a row each; times count from 0.
        title: Of all.
        path: Where to, PNG.
    """
    from matplotlib import rc_context

    from ..sim.results.pictures.curves import INK, STYLE, new_figure

    peers = list(next(iter(traces.values())))
    with rc_context(STYLE):
        figure = new_figure(8, 5.2, "constrained", dpi=110)
        grid = figure.subplots(len(peers), len(traces), sharey=True, squeeze=False)
        for column, (way, seen) in enumerate(traces.items()):
            for row, peer in enumerate(peers):
                axes, samples = grid[row][column], seen[peer]
                times_s = [sample.time_s for sample in samples]
                stacked = [[getattr(sample, kind) for sample in samples] for kind in _KINDS]
                colors, labels = zip(*_KINDS.values(), strict=True)
                axes.stackplot(times_s, stacked, colors=colors, labels=labels, step="post")
                resident = [sample.resident for sample in samples]
                axes.plot(times_s, resident, color=INK, linewidth=1.2, label="resident, with it")
                axes.set_title(f"{peer}, {way}")
                axes.set_ylim(bottom=0)
            grid[-1][column].set_xlabel("seconds since newcomers started")
        for row in range(len(peers)):
            grid[row][0].set_ylabel("models")
        handles, labels_shown = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels_shown, loc="outside lower center", ncols=3)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        figure.savefig(path)


def _dead_neighbor(size_bytes: int, pushes: int, deaths: Mapping[str, Death]) -> Iterator[Row]:
    sent = fitting(pushes, size_bytes, available_bytes())
    _log.info("pushing toward a dead neighbor: plain ZeroMQ, %d times", sent)
    plain = _plain_growth(size_bytes, sent) * pushes / sent
    extrapolated = "" if sent == pushes else f", extrapolated from {sent} pushes"
    for name, (how, shared_memory) in deaths.items():
        _log.info("pushing toward a dead neighbor: %s", name)
        found = _growth(size_bytes, pushes, how, shared_memory)
        yield Row(
            name=f"growth in {pushes:,} pushes toward one {name}",
            ours=found["grown_bytes"] / 1e6,
            reference=plain / 1e6,
            unit="MB",
            note=f"a plain DEALER toward one killed{extrapolated}; ours: {found['pushed']} begun, "
            f"{found['skipped']} skipped, another neighbor served meanwhile",
        )


class Aimed:
    """A rule that pushes to everybody at every step, and counts what becomes of one neighbor's."""

    name = "aimed"
    registers: tuple[str, ...] = ()
    outstanding_max = 16

    def __init__(self) -> None:
        self.target = ""
        """Whose pushes are counted."""
        self.pushed = 0
        """Pushes toward it that were begun."""
        self.skipped = 0
        """Those that found no credit, or no connection."""

    def step(self, turn: RuleContext) -> None:
        """Take one turn."""
        for share in turn.shares():
            turn.mix(share)
        for peer in turn.live():
            if peer != turn.me and peer != self.target and turn.can_push(peer):
                turn.push(peer, _WEIGHT)
        if turn.can_push(self.target):
            turn.push(self.target, _WEIGHT)
            self.pushed += 1
        else:
            self.skipped += 1


def _growth(
    size_bytes: int, pushes: int, how: signal.Signals, shared_memory: bool
) -> dict[str, int]:
    """Push toward a neighbor that dies, beside one that lives.

    Returns:
        ``grown_bytes``, by how much resident memory was ever above what it was before;
        ``pushed`` and ``skipped``, what became of the pushes.
    """
    with TemporaryDirectory() as folder:
        given = (folder, size_bytes // 4, shared_memory)
        roles = [(role, *given) for role in ("measured", "living", "dying")]
        with partners(_serve_neighbor, roles) as (measured, living, dying):
            for one in (measured, living, dying):
                one.hear()
            for one in (living, dying):
                one.say("step")
            measured.ask(_WARM_PUSHES)
            os.kill(dying.pid, how)
            measured.say(pushes)
            found = measured.hear(_PATIENCE_S)
            dying.kill()
    return dict(found)


def _serve_neighbor(pipe: Pipe, role: str, folder: str, n_params: int, shared_memory: bool) -> None:
    rule = Aimed() if role == "measured" else GoSGD(0.0)
    config = PeerConfig(
        id=role,
        rendezvous=Path(folder),
        founders=3,
        topology="complete",
        rule=rule,
        linger_s=0,
        leave_s=1,
        protocol=ProtocolConfig(shared_memory=shared_memory),
    )
    with Peer(Flat(n_params), config) as peer:
        pipe.send("founded")
        if isinstance(rule, Aimed):
            rule.target = "dying"
            _push(pipe, peer, rule)
        elif pipe.recv() is not None:
            while not pipe.poll():
                time.sleep(_STEP_S)
                peer.step()


def _push(pipe: Pipe, peer: Peer, rule: Aimed) -> None:
    warm_pushes = pipe.recv()
    while rule.pushed < warm_pushes:
        time.sleep(_STEP_S)
        peer.step()
    pipe.send("warm")
    pushes = pipe.recv()
    rule.pushed = rule.skipped = 0
    before = most = resident_bytes()
    while rule.pushed + rule.skipped < pushes:
        time.sleep(_STEP_S)
        peer.step()
        most = max(most, resident_bytes())
    pipe.send({"grown_bytes": most - before, "pushed": rule.pushed, "skipped": rule.skipped})
    pipe.recv()


def _plain_growth(size_bytes: int, pushes: int) -> int:
    """The same with one DEALER socket as ZeroMQ makes it; bytes of growth."""
    with partner(_swallow) as receiver, partner(_send, receiver.hear(), size_bytes) as sender:
        sender.ask(_WARM_PUSHES)
        receiver.kill()
        sender.say(pushes)
        return int(sender.hear(_PATIENCE_S))


def _swallow(pipe: Pipe) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    pipe.send(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}")
    while True:
        socket.recv_multipart(copy=False)


def _send(pipe: Pipe, address: str, size_bytes: int) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    # The default would wait for the dead receiver at the end.
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(address)
    vector = torch.ones(size_bytes // 4)
    while (pushes := pipe.recv()) is not None:
        before = resident_bytes()
        _send_all(socket, vector, pushes)
        pipe.send(resident_bytes() - before)
    context.destroy(linger=0)


def _send_all(socket: "zmq.Socket[bytes]", vector: torch.Tensor, pushes: int) -> None:
    for _ in range(pushes):
        time.sleep(_STEP_S)
        payload: Any = vector.clone().numpy()
        try:
            socket.send(payload, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            # Its high-water mark is reached.
            return


def _kill(peers: int, n_params: int, p: float, step_s: float, watch_s: float) -> Iterator[Row]:
    _log.info("killing one of %d peers", peers)
    before_s, after_s = _pauses(peers, n_params, p, step_s, watch_s)
    for name, percent in {"longest": 100.0, "p99": 99.0, "median": 50.0}.items():
        yield Row(
            name=f"{name} step() of the survivors, one of {peers} killed",
            ours=percentile(after_s, percent) * 1e3,
            reference=percentile(before_s, percent) * 1e3,
            unit="ms",
            note=f"the same {watch_s:g} s before; {len(after_s)} and {len(before_s)} steps",
        )


def _pauses(
    peers: int, n_params: int, p: float, step_s: float, watch_s: float
) -> tuple[list[float], list[float]]:
    """Let peers train, and kill the last; it is considered dead after half of the time that
    follows.

    Returns:
        What each `Peer.step` of the survivors took before the kill, and in as long a time after it.
    """
    before_s: list[float] = []
    after_s: list[float] = []
    with TemporaryDirectory() as folder:
        given = [(folder, peers, n_params, p, step_s, watch_s / 2)] * peers
        with partners(_serve_pauses, given) as (*survivors, victim):
            for one in (*survivors, victim):
                one.hear()
            start_s = time.monotonic()
            for one in (*survivors, victim):
                one.say(start_s + 2 * watch_s)
            time.sleep(watch_s)
            killed_s = time.monotonic()
            victim.kill()
            for one in survivors:
                for ended_s, stall_s in one.hear(2 * watch_s + _PATIENCE_S):
                    (before_s if ended_s < killed_s else after_s).append(stall_s)
    return before_s, after_s


def _serve_pauses(
    pipe: Pipe, folder: str, peers: int, n_params: int, p: float, step_s: float, dead_s: float
) -> None:
    config = PeerConfig(
        rendezvous=Path(folder),
        founders=peers,
        rule=GoSGD(p),
        linger_s=0,
        leave_s=1,
        protocol=ProtocolConfig(dead_s=dead_s),
    )
    with Peer(Flat(n_params), config) as peer:
        pipe.send("founded")
        end_s = pipe.recv()
        burst, ended_s = Burst(), []
        while time.monotonic() < end_s:
            burst.step(peer.step, sleeping(step_s))
            ended_s.append(time.monotonic())
        pipe.send(list(zip(ended_s, burst.stalls_s, strict=True)))
        pipe.recv()
