"""``membership``: how soon peers know who is there, and what knowing it costs."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
import zmq

from ..gossip import ONE, GoSGD, ProtocolConfig, RuleContext
from ..gossip.config import TIMINGS, timing
from ..gossip.transport.zmq_transport import Transport
from ..gossip.wire.codec import Buffer
from ..train import Peer, PeerConfig
from . import netns as cable_end
from .exchange import Flat, Partner, Pipe, partner, partners
from .netns import Cable, CableError, cable
from .results import Result, Row, machine, percentile
from .stall import Burst

__all__ = [
    "DEATHS",
    "Aimed",
    "Death",
    "Firewall",
    "Pauses",
    "available_bytes",
    "fitting",
    "growth",
    "measure_control",
    "measure_membership",
    "measure_memory",
    "pauses",
    "plain_growth",
    "resident_bytes",
]


_WEIGHT: Final = ONE >> 20
_WARM_PUSHES: Final = 10
_NEIGHBOR_STEP_S: Final = 0.002
_PATIENCE_S: Final = 300.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Aimed:
    """A rule that pushes to everybody at every step, and counts what becomes of one neighbor's.

    Attributes:
        target: Whose pushes are counted.
        pushed: Pushes toward it that were begun.
        skipped: Pushes toward it that found no credit, or no connection.
    """

    name = "aimed"
    registers: tuple[str, ...] = ()
    outstanding_max = 16

    def __init__(self) -> None:
        self.target = ""
        self.pushed = 0
        self.skipped = 0

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


def growth(
    size_bytes: int, pushes: int, how: signal.Signals, *, shared_memory: bool
) -> dict[str, int]:
    """Push toward a neighbor that dies, beside one that lives.

    Args:
        size_bytes: Of the float32 vector.
        pushes: How many are due after the death.
        how: The signal that does it: ``SIGKILL``, or ``SIGSTOP``, after which its connections
            stay open and nobody reads from them.
        shared_memory: Whether shares go through it, or over TCP, as to another machine.

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
            measured.ask(("warm", _WARM_PUSHES))
            os.kill(dying.pid, how)
            measured.say(("measure", pushes))
            found = measured.hear(_PATIENCE_S)
            dying.kill()
    return dict(found)


def plain_growth(size_bytes: int, pushes: int) -> int:
    """The same with one DEALER socket as ZeroMQ makes it; bytes of growth."""
    with partner(_swallow) as receiver, partner(_send, receiver.hear(), size_bytes) as sender:
        sender.ask(_WARM_PUSHES)
        receiver.kill()
        sender.say(pushes)
        return int(sender.hear(_PATIENCE_S))


def resident_bytes() -> int:
    """Memory of this process that is in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def available_bytes() -> int:
    """Memory that the system could still give."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


def _serve_neighbor(pipe: Pipe, role: str, folder: str, n_params: int, shared_memory: bool) -> None:
    torch.set_num_threads(1)
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
                time.sleep(_NEIGHBOR_STEP_S)
                peer.step()


def _push(pipe: Pipe, peer: Peer, rule: Aimed) -> None:
    _, pushes = pipe.recv()
    while rule.pushed < pushes:
        time.sleep(_NEIGHBOR_STEP_S)
        peer.step()
    pipe.send("warm")
    _, pushes = pipe.recv()
    rule.pushed = rule.skipped = 0
    before = most = resident_bytes()
    while rule.pushed + rule.skipped < pushes:
        time.sleep(_NEIGHBOR_STEP_S)
        peer.step()
        most = max(most, resident_bytes())
    pipe.send({"grown_bytes": most - before, "pushed": rule.pushed, "skipped": rule.skipped})
    pipe.recv()


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
    before = 0
    while (pushes := pipe.recv()) is not None:
        before = resident_bytes()
        _send_all(socket, vector, pushes)
        pipe.send(resident_bytes() - before)
    context.destroy(linger=0)


def _send_all(socket: "zmq.Socket[bytes]", vector: torch.Tensor, pushes: int) -> None:
    for _ in range(pushes):
        time.sleep(_NEIGHBOR_STEP_S)
        payload: Any = vector.clone().numpy()
        try:
            socket.send(payload, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            # Its high-water mark is reached.
            return


def fitting(pushes: int, size_bytes: int, available: int) -> int:
    """As many pushes as take half of the available memory at most."""
    return max(1, min(pushes, available // 2 // size_bytes))


_log = logging.getLogger("rumor.benchmarks")

_PORT: Final = 7700
_END_S_MAX: Final = 240


def measure_control(
    link_mb_s: float = 20,
    size_mb: float = 40,
    times: int = 3,
    idle_s: float = 3.0,
    bulk_mib: int = 8,
    pings: int = 7,
) -> Result:
    """Time HELLOs and their answers between two hosts while one pushes large shares at the other.

    Args:
        link_mb_s: What the link between them carries, 10**6 bytes per second.
        size_mb: Size of the float32 vector, 10**6 bytes.
        times: How often it is pushed.
        idle_s: How long HELLOs are timed without bulk, seconds.
        bulk_mib: What plain ZeroMQ is given to send right before each ping, 2**20 bytes.
        pings: Of plain ZeroMQ, without bulk and with it.
    """
    start_s = time.perf_counter()
    try:
        with cable(link_mb_s * 1e6) as laid:
            _log.info("plain ZeroMQ on a link of %g MB/s", link_mb_s)
            plain = _run_ends(laid, "plain_", _plain(laid, bulk_mib << 20, pings))
            _log.info("rumor on a link of %g MB/s", link_mb_s)
            size_bytes = int(size_mb * 1e6) // 4 * 4
            ours = _run_ends(laid, "", _peers(laid, size_bytes, times, idle_s))
        rows = tuple(_control_rows(ours, plain, link_mb_s, bulk_mib))
    except CableError as error:
        _log.warning("%s", error)
        rows = (Row(name="not measured", ours=0, reference=0, unit="ms", note=str(error)),)
    return Result(
        name="control",
        title=f"Round trip of control messages on a link of {link_mb_s:g} MB/s, while shares of "
        f"{size_mb:g} MB are pushed",
        columns=("what", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=rows,
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


_Asked = tuple[Mapping[str, Any], Mapping[str, Any]]


def _plain(laid: Cable, bulk_bytes: int, pings: int) -> _Asked:
    address = f"tcp://{laid.addresses[0]}:{_PORT}"
    return {"address": address, "bulk_bytes": bulk_bytes, "times": pings}, {"address": address}


def _peers(laid: Cable, size_bytes: int, times: int, idle_s: float) -> _Asked:
    first, second = (f"tcp://{address}:{_PORT}" for address in laid.addresses)
    near = {"address": first, "size_bytes": size_bytes, "times": times, "idle_s": idle_s}
    return near, {"address": second, "join": first, "size_bytes": size_bytes}


def _control_rows(
    ours: Mapping[str, Any], plain: Mapping[str, Any], link_mb_s: float, bulk_mib: int
) -> Iterator[Row]:
    one_socket = "a ping of plain ZeroMQ on the socket that bulk goes over"
    behind = f"{one_socket}, behind {bulk_mib} MiB"
    bulk_ms = [taken_s * 1e3 for taken_s in ours["bulk_s"]]
    behind_ms = median(plain["bulk_s"]) * 1e3
    counted = f"{len(bulk_ms)} HELLOs"
    shown = {
        "under bulk, median": (median(bulk_ms), f"{behind}; {counted}"),
        "under bulk, p99": (percentile(bulk_ms, 99), f"{behind}, median; {counted}"),
        "under bulk, longest": (max(bulk_ms), f"{behind}, median; {counted}"),
    }
    yield Row(
        name="without bulk, median",
        ours=median(ours["idle_s"]) * 1e3,
        reference=median(plain["idle_s"]) * 1e3,
        unit="ms",
        note=f"{one_socket}, with none",
    )
    for name, (figure, note) in shown.items():
        yield Row(name=name, ours=figure, reference=behind_ms, unit="ms", note=note)
    yield Row(
        name="bulk meanwhile",
        ours=ours["bytes_s"] / 1e6,
        reference=link_mb_s,
        unit="MB/s",
        note="what the link carries, headers included",
    )


def _run_ends(laid: Cable, kind: str, asked: _Asked) -> dict[str, Any]:
    """Run both ends; what the near one found."""
    near, far = asked
    with _end(laid, 1, f"{kind}far", far), _end(laid, 0, f"{kind}near", near) as process:
        try:
            out, _ = process.communicate(timeout=_END_S_MAX)
        except subprocess.TimeoutExpired:
            raise CableError(f"nothing came over it in {_END_S_MAX} s") from None
    if process.returncode:
        raise CableError(f"an end of it failed with status {process.returncode}")
    return dict(json.loads(out.splitlines()[-1]))


@contextmanager
def _end(
    laid: Cable, end: int, role: str, asked: Mapping[str, Any]
) -> "Iterator[subprocess.Popen[str]]":
    # -P: the folder of the script has modules called topology and result.
    script = (sys.executable, "-P", cable_end.__file__, role, json.dumps(asked))
    process = subprocess.Popen(
        laid.command(end, *script),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Firewall:
    """Stands before the transport of this process's peer, which must not have been made yet.

    A message that it drops counts as sent, as one that a network swallows does. A link is cut where
    both ends drop.
    """

    def __init__(self) -> None:
        self._blocked: frozenset[str] = frozenset()
        self._addresses: frozenset[str] = frozenset()
        # A peer makes its transport itself; what goes out of it can be seen here only.
        send, greet = Transport.send, Transport.greet

        def guarded_send(
            transport: Transport, peer: str, parts: Sequence[Buffer], *, bulk: bool
        ) -> bool:
            return peer in self._blocked or send(transport, peer, parts, bulk=bulk)

        def guarded_greet(transport: Transport, address: str, parts: Sequence[Buffer]) -> bool:
            return address in self._addresses or greet(transport, address, parts)

        Transport.send = guarded_send  # type: ignore[assignment,method-assign]
        Transport.greet = guarded_greet  # type: ignore[assignment,method-assign]

    def block(self, peers: Collection[str], addresses: Collection[str]) -> None:
        """Drop what goes to these peers from now on, and to nobody else.

        Args:
            peers: Their ids.
            addresses: Where they listen: a stranger's greeting goes to an address.
        """
        self._blocked, self._addresses = frozenset(peers), frozenset(addresses)


_N_PARAMS: Final = 1000
_STEP_S: Final = 0.01
_WATCHED_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class _Found:
    """Times of one swarm, seconds, and bytes."""

    bytes_s: float
    """Sent by a peer in a second while nothing happens."""
    first_to_miss_s: float
    last_to_miss_s: float
    joined_s: float
    known_s: float
    split_s: float
    healed_s: float


def measure_membership(
    peers: int = 8,
    timings: Sequence[str] = ("local", "lan"),
    rounds: int = 3,
    held_s: float = 20.0,
) -> Result:
    """Kill, join, cut and heal in swarms of live peers whose shares are next to nothing.

    Args:
        peers: How many found the swarm, at least 4.
        timings: Presets of times, one swarm of each after the other.
        rounds: How often a swarm is made and all that done to it; figures are medians.
        held_s: How long a cut stays after each half has taken the other for dead, seconds.
    """
    start_s = time.perf_counter()
    rows: list[Row] = []
    for name in timings:
        found = []
        for number in range(rounds):
            _log.info("membership: %d peers, timing %s, round %d", peers, name, number + 1)
            found.append(_watch_swarm(peers, name, held_s))
        rows.extend(_rows(found, peers, name, held_s))
    return Result(
        name="membership",
        title=f"How soon {peers} live peers know who is there; less is better",
        columns=("what", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


def _rows(found: Sequence[_Found], peers: int, name: str, held_s: float) -> Iterator[Row]:
    times = TIMINGS[name]
    references = {
        "first_to_miss_s": ("one is killed: the first holds it for dead", times.dead_s, "dead_s"),
        "last_to_miss_s": ("one is killed: all hold it for dead", times.dead_s, "dead_s"),
        "joined_s": ("a newcomer starts: it has its copy", times.gossip_s, "gossip_s"),
        "known_s": ("a newcomer starts: all see it", times.gossip_s, "gossip_s"),
        "split_s": ("cut in halves: each holds the other for dead", times.dead_s, "dead_s"),
        "healed_s": (
            f"healed {held_s:g} s later: all see all",
            times.redial_s_max,
            "redial_s_max",
        ),
    }
    for field, (what, reference, setting) in references.items():
        figures = [getattr(one, field) for one in found]
        yield Row(
            name=f"{name}: {what}",
            ours=median(figures),
            reference=reference,
            unit="s",
            note=f"{setting} of the preset; from {min(figures):.2f} to {max(figures):.2f} s in "
            f"{len(figures)} rounds",
        )
    yield Row(
        name=f"{name}: sent by each peer while nothing happens",
        ours=median(one.bytes_s for one in found),
        reference=peers / times.gossip_s,
        unit="bytes/s",
        note="entries of the roster per second, so that the ratio is bytes per entry",
    )


def _watch_swarm(peers: int, name: str, held_s: float) -> _Found:
    """All that happens to one swarm."""
    ids = [f"peer-{number}" for number in range(peers)]
    with TemporaryDirectory() as folder:
        given = [(id, name, {"rendezvous": folder, "founders": peers}) for id in ids]
        with partners(_serve, given) as started:
            swarm = dict(zip(ids, started, strict=True))
            addresses = {id: str(one.hear(_PATIENCE_S)) for id, one in swarm.items()}
            _until(swarm, ids)
            bytes_s = _sent(swarm, _WATCHED_ROUNDS * TIMINGS[name].gossip_s)
            victim = swarm.pop(ids[-1])
            killed_s = time.monotonic()
            victim.kill()
            missed_s = [at_s - killed_s for at_s in _until(swarm, ids[:-1])]
            join = {"join": (addresses[ids[0]],)}
            with partner(_serve, "newcomer", name, join, True) as newcomer:
                newcomer.hear(_PATIENCE_S)
                everybody = sorted([*swarm, "newcomer"])
                started_s = time.monotonic()
                newcomer.say("start")
                addresses["newcomer"] = newcomer.hear(_PATIENCE_S)
                joined_s = newcomer.hear(_PATIENCE_S) - started_s
                swarm["newcomer"] = newcomer
                known_s = max(_until(swarm, everybody)) - started_s
                split_s, healed_s = _split(swarm, addresses, held_s)
    return _Found(bytes_s, min(missed_s), max(missed_s), joined_s, known_s, split_s, healed_s)


def _split(
    swarm: dict[str, Partner], addresses: dict[str, str], held_s: float
) -> tuple[float, float]:
    """Cut a swarm in halves, until each takes the other for dead, and heal it; how long each."""
    everybody = sorted(swarm)
    halves = everybody[::2], everybody[1::2]
    cut_s = time.monotonic()
    for half, other in (halves, halves[::-1]):
        for id in half:
            swarm[id].ask(("block", other, [addresses[id] for id in other]))
    for half in halves:
        for id in half:
            swarm[id].say(("until", half))
    split_s = max(one.hear(_PATIENCE_S) for one in swarm.values()) - cut_s
    time.sleep(held_s)
    for one in swarm.values():
        one.ask(("block", (), ()))
    healed_s = time.monotonic()
    return split_s, max(_until(swarm, everybody)) - healed_s


def _until(swarm: dict[str, Partner], ids: Sequence[str]) -> list[float]:
    """Wait until each of them sees just these; when each did."""
    for one in swarm.values():
        one.say(("until", sorted(ids)))
    return [float(one.hear(_PATIENCE_S)) for one in swarm.values()]


def _sent(swarm: dict[str, Partner], seconds: float) -> float:
    """Bytes that a peer has sent in a second, the mean over all."""
    before = sum(one.ask(("sent",)) for one in swarm.values())
    start_s = time.monotonic()
    time.sleep(seconds)
    after = sum(one.ask(("sent",)) for one in swarm.values())
    return float((after - before) / len(swarm) / (time.monotonic() - start_s))


def _serve(pipe: Pipe, id: str, name: str, given: dict[str, Any], waits: bool = False) -> None:
    torch.set_num_threads(1)
    firewall = Firewall()
    if "rendezvous" in given:
        given = given | {"rendezvous": Path(given["rendezvous"])}
    protocol: dict[str, Any] = {"shared_memory": False, **timing(name)}
    config = PeerConfig(
        id=id,
        rule=GoSGD(0.0),
        linger_s=0,
        leave_s=1,
        protocol=ProtocolConfig(**protocol),
        **given,
    )
    made = Peer(Flat(_N_PARAMS), config)
    if waits:
        pipe.send("made")
        pipe.recv()
    with made as peer:
        joined_s = time.monotonic()
        pipe.send(peer.address)
        if waits:
            pipe.send(joined_s)
        while (asked := _hear(pipe, peer)) is not None:
            match asked:
                case "until", ids:
                    while list(peer.live) != list(ids):
                        time.sleep(_STEP_S)
                        peer.step()
                    pipe.send(time.monotonic())
                case ("sent",):
                    pipe.send(peer.counters.bytes_sent)
                case "block", peers, addresses:
                    firewall.block(peers, addresses)
                    pipe.send("done")
                case _:
                    raise ValueError(f"{os.getpid()} was asked {asked!r}")


def _hear(pipe: Pipe, peer: Peer) -> Any:
    """Step until something is asked."""
    while not pipe.poll(_STEP_S):
        peer.step()
    return pipe.recv()


@dataclass(frozen=True, slots=True)
class Pauses:
    """What `Peer.step` took of all survivors, seconds."""

    before_s: list[float]
    """In the time before the kill."""
    after_s: list[float]
    """In as long a time after it."""


def pauses(peers: int, n_params: int, p: float, step_s: float, watch_s: float) -> Pauses:
    """Let peers train, and kill the last.

    Args:
        peers: How many, at first.
        n_params: Parameters of the model.
        p: Probability of a push at a step.
        step_s: How long a step of the optimizer sleeps, seconds.
        watch_s: How long to watch before the kill, and again after it; the dead one is held for
            dead after half of it.
    """
    with TemporaryDirectory() as folder:
        given = [(folder, peers, n_params, p, step_s, watch_s / 2) for _ in range(peers)]
        with partners(_serve_pauses, given) as all_of_them:
            for one in all_of_them:
                one.hear()
            start_s = time.monotonic()
            for one in all_of_them:
                one.say(start_s + 2 * watch_s)
            time.sleep(watch_s)
            killed_s = time.monotonic()
            all_of_them[-1].kill()
            found = Pauses([], [])
            for survivor in all_of_them[:-1]:
                for ended_s, stall_s in survivor.hear(2 * watch_s + _PATIENCE_S):
                    (found.before_s if ended_s < killed_s else found.after_s).append(stall_s)
    return found


def _serve_pauses(
    pipe: Pipe, folder: str, peers: int, n_params: int, p: float, step_s: float, dead_s: float
) -> None:
    torch.set_num_threads(1)
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
            burst.step(peer.step, step_s)
            ended_s.append(time.monotonic())
        pipe.send(list(zip(ended_s, burst.stalls_s, strict=True)))
        pipe.recv()


Death = tuple[signal.Signals, bool]
"""The signal that brings it about, and whether shares went through shared memory."""

DEATHS: Final[Mapping[str, Death]] = {
    "killed, TCP": (signal.SIGKILL, False),
    "killed, shared memory": (signal.SIGKILL, True),
    "stopped with its connections open, TCP": (signal.SIGSTOP, False),
}
"""Ways for a neighbor to fall silent."""


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
    start_s = time.perf_counter()
    size_bytes = int(size_mb * 1e6) // 4 * 4
    rows: list[Row] = []
    # Resident memory is read from the Linux kernel's own files.
    if sys.platform == "linux":
        rows.extend(_dead_neighbor(size_bytes, pushes, deaths))
    rows.extend(_kill(peers, size_bytes // 4, p, step_s, watch_s))
    return Result(
        name="memory",
        title=f"What a dead neighbor costs the living; vectors of {size_mb:g} MB",
        columns=("what", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


def _dead_neighbor(size_bytes: int, pushes: int, deaths: Mapping[str, Death]) -> Iterator[Row]:
    sent = fitting(pushes, size_bytes, available_bytes())
    _log.info("pushing toward a dead neighbor: plain ZeroMQ, %d times", sent)
    plain = plain_growth(size_bytes, sent) * pushes / sent
    extrapolated = "" if sent == pushes else f", extrapolated from {sent} pushes"
    for name, (how, shared_memory) in deaths.items():
        _log.info("pushing toward a dead neighbor: %s", name)
        found = growth(size_bytes, pushes, how, shared_memory=shared_memory)
        yield Row(
            name=f"growth in {pushes:,} pushes toward one {name}",
            ours=found["grown_bytes"] / 1e6,
            reference=plain / 1e6,
            unit="MB",
            note=f"a plain DEALER toward one killed{extrapolated}; ours: {found['pushed']} begun, "
            f"{found['skipped']} skipped, another neighbor served meanwhile",
        )


def _kill(peers: int, n_params: int, p: float, step_s: float, watch_s: float) -> Iterator[Row]:
    _log.info("killing one of %d peers", peers)
    found = pauses(peers, n_params, p, step_s, watch_s)
    for name, percent in {"longest": 100.0, "p99": 99.0, "median": 50.0}.items():
        yield Row(
            name=f"{name} step() of the survivors, one of {peers} killed",
            ours=percentile(found.after_s, percent) * 1e3,
            reference=percentile(found.before_s, percent) * 1e3,
            unit="ms",
            note=f"the same {watch_s:g} s before; {len(found.after_s)} and {len(found.before_s)} "
            "steps",
        )
