"""``control``: messages beside bulk, between two hosts whose cables are of limited speed."""

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any, Final

import torch
import zmq

from ...gossip import Envelope, GoSGD, Protocol, ProtocolConfig
from ...gossip.effects.effects import Effect, Send
from ...gossip.effects.events import Event
from ...gossip.wire.messages import Hello
from ...train import Peer, PeerConfig
from ..exchange.exchange import OnDemand
from ..exchange.processes import Flat
from ..exchange.raw import FRAME_BYTES
from ..results import Result, Row, percentile
from .hosts import Hosts, HostsError, hosts, started, told_by

__all__ = ["measure_control", "run_end"]

_log = logging.getLogger("rumor.benchmarks")

_PORT: Final = 7700
_END_S_MAX: Final = 240
_GOSSIP_S: Final = 0.05
_STEP_S: Final = 0.002
_QUIET_S: Final = 0.5


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
    size_bytes = int(size_mb * 1e6) // 4 * 4
    try:
        with hosts(2, link_mb_s * 1e6) as laid:
            first, second = (f"tcp://{address}:{_PORT}" for address in laid.addresses)
            _log.info("plain ZeroMQ on a link of %g MB/s", link_mb_s)
            asked = {"address": first, "bulk_bytes": bulk_mib << 20, "times": pings}
            plain = _run_ends(laid, "plain_", asked, {"address": first})
            _log.info("rumor on a link of %g MB/s", link_mb_s)
            asked = {"address": first, "size_bytes": size_bytes, "times": times, "idle_s": idle_s}
            joining = {"address": second, "join": first, "size_bytes": size_bytes}
            ours = _run_ends(laid, "", asked, joining)
        rows = tuple(_rows(ours, plain, link_mb_s, bulk_mib))
    except HostsError as error:
        _log.warning("%s", error)
        rows = (Row(name="not measured", ours=0, reference=0, unit="ms", note=str(error)),)
    return Result(
        name="control",
        title=f"Round trip of control messages on a link of {link_mb_s:g} MB/s, while shares of "
        f"{size_mb:g} MB are pushed",
        rows=rows,
    )


def _rows(
    ours: Mapping[str, Any], plain: Mapping[str, Any], link_mb_s: float, bulk_mib: int
) -> Iterator[Row]:
    one_socket = "a ping of plain ZeroMQ on the socket that bulk goes over"
    behind = f"{one_socket}, behind {bulk_mib} MiB"
    idle_ms, bulk_ms = ([taken_s * 1e3 for taken_s in ours[way]] for way in ("idle_s", "bulk_s"))
    plain_ms, behind_ms = (median(plain[way]) * 1e3 for way in ("idle_s", "bulk_s"))
    counted = f"{len(bulk_ms)} HELLOs"
    figures = {
        "without bulk, median": (median(idle_ms), plain_ms, f"{one_socket}, with none"),
        "under bulk, median": (median(bulk_ms), behind_ms, f"{behind}; {counted}"),
        "under bulk, p99": (percentile(bulk_ms, 99), behind_ms, f"{behind}, median; {counted}"),
        "under bulk, longest": (max(bulk_ms), behind_ms, f"{behind}, median; {counted}"),
    }
    for name, (figure, reference, note) in figures.items():
        yield Row(name=name, ours=figure, reference=reference, unit="ms", note=note)
    yield Row(
        name="bulk meanwhile",
        ours=ours["bytes_s"] / 1e6,
        reference=link_mb_s,
        unit="MB/s",
        note="what the link carries, headers included",
    )


def _run_ends(
    laid: Hosts, kind: str, near: Mapping[str, Any], far: Mapping[str, Any]
) -> dict[str, Any]:
    """Run both ends; what the near one found."""
    with (
        started(laid, 1, run_end, f"{kind}far", json.dumps(far)),
        started(laid, 0, run_end, f"{kind}near", json.dumps(near)) as process,
    ):
        return told_by(process, _END_S_MAX)


def run_end(role: str, asked: str) -> None:
    """Be one of the two hosts, in a process of its own, and print what was found as JSON.

    Args:
        role: ``near``, ``far``, ``plain_near`` or ``plain_far``.
        asked: The arguments of that role, as JSON.
    """
    torch.set_num_threads(1)
    roles: dict[str, Callable[..., Any]] = {
        "near": _near,
        "far": _far,
        "plain_near": _plain_near,
        "plain_far": _plain_far,
    }
    print(json.dumps(roles[role](**json.loads(asked))), flush=True)


class _HelloWatch:
    """Times HELLOs that want an answer, and their answers, at the protocol of this process."""

    def __init__(self) -> None:
        self.roundtrips_s: list[float] = []
        self._asked: deque[float] = deque()
        # A peer makes its protocol itself; what goes in and out of it can be seen here only.
        receive, wake = Protocol.receive, Protocol.wake

        def watched_receive(
            protocol: Protocol, envelope: Envelope, *others: Any
        ) -> list[Effect | Event]:
            if isinstance(envelope.body, Hello) and not envelope.body.reply and self._asked:
                self.roundtrips_s.append(time.monotonic() - self._asked.popleft())
            return receive(protocol, envelope, *others)

        def watched_wake(protocol: Protocol, now: float) -> list[Effect | Event]:
            effects = wake(protocol, now)
            self._asked.extend(time.monotonic() for effect in effects if _wants_answer(effect))
            return effects

        Protocol.receive = watched_receive  # type: ignore[assignment,method-assign]
        Protocol.wake = watched_wake  # type: ignore[assignment,method-assign]

    def take(self) -> list[float]:
        """Round trips since this was last called, seconds."""
        taken, self.roundtrips_s = self.roundtrips_s, []
        return taken


def _wants_answer(effect: Effect | Event) -> bool:
    return (
        isinstance(effect, Send)
        and isinstance(effect.envelope.body, Hello)
        and effect.envelope.body.reply
    )


def _near(address: str, size_bytes: int, times: int, idle_s: float) -> dict[str, Any]:
    """Found a swarm, and push to the one that joins while HELLOs go to and fro.

    Returns:
        ``idle_s`` and ``bulk_s``, round trips without and with bulk on its way; ``bytes_s``, what
        the bulk came to.
    """
    watch, rule = _HelloWatch(), OnDemand()
    with Peer(Flat(size_bytes // 4), _config(bind=address, rule=rule)) as peer:
        _admit(peer)
        watch.take()
        _step_for(peer, idle_s)
        idle = watch.take()
        _push(peer, rule)
        start_s = rule.pushed_s
        for _ in range(times):
            # Each is decided when the answer to the one before has come.
            _push(peer, rule)
        bytes_s = times * size_bytes / (rule.pushed_s - start_s)
        return {"idle_s": idle, "bulk_s": watch.take(), "bytes_s": bytes_s}


def _far(address: str, join: str, size_bytes: int) -> None:
    """Join, and mix what comes until killed."""
    config = _config(bind=address, join=(join,), rule=GoSGD(0.0))
    with Peer(Flat(size_bytes // 4), config) as peer:
        while True:
            _step_for(peer, 1.0)


def _plain_near(address: str, bulk_bytes: int, times: int) -> dict[str, Any]:
    """Time pings on the one socket that bulk goes over, too; without bulk, and right behind it."""
    frame = bytes(FRAME_BYTES)
    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.bind(address)
        socket.recv()
        found: dict[str, Any] = {"idle_s": [], "bulk_s": []}
        for name, frames in {"idle_s": 0, "bulk_s": bulk_bytes // FRAME_BYTES}.items():
            for _ in range(times):
                for _ in range(frames):
                    socket.send(frame, copy=False)
                start_s = time.monotonic()
                socket.send(b"ping")
                socket.recv()
                found[name].append(time.monotonic() - start_s)
        return found


def _plain_far(address: str) -> None:
    """Answer pings until killed."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.connect(address)
        socket.send(b"here")
        while True:
            if len(socket.recv(copy=False)) < FRAME_BYTES:
                socket.send(b"pong")


def _config(**given: Any) -> PeerConfig:
    # They share a kernel, and must not notice.
    protocol = ProtocolConfig(shared_memory=False, gossip_s=_GOSSIP_S)
    return PeerConfig(protocol=protocol, linger_s=0, leave_s=0.5, **given)


def _admit(peer: Peer) -> None:
    """Step until the newcomer has its copy, and nothing large is on its way."""
    while len(peer.live) < 2:
        _step_for(peer, _STEP_S)
    quiet = False
    while not quiet:
        before = peer.counters.bytes_sent
        _step_for(peer, _QUIET_S)
        quiet = peer.counters.pushes > 0 and peer.counters.bytes_sent - before < FRAME_BYTES


def _push(peer: Peer, rule: OnDemand) -> None:
    rule.wanted = True
    while rule.wanted:
        _step_for(peer, _STEP_S)


def _step_for(peer: Peer, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        time.sleep(_STEP_S)
        peer.step()
