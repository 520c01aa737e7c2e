"""``slow-link``: four peers of a model that their cables carry slowly; what gets through, and what
that takes from training."""

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from socket import AF_INET, SOCK_DGRAM, socket
from statistics import mean, median
from typing import Any, Final

import torch

from ...gossip import GoSGD, ProtocolConfig
from ...train import Peer, PeerConfig
from ..exchange.processes import Flat
from ..results import Result, Row, percentile
from .hosts import Hosts, HostsError, hosts, started, told_by

__all__ = ["measure_slow_link", "run_peer"]

_log = logging.getLogger("rumor.benchmarks")

_PEERS: Final = 4
_PORT: Final = 7700
_ECHO_PORT: Final = 7701
_ECHO_EVERY_S: Final = 0.2
_JOIN_S_MAX: Final = 180.0
_OVER_S: Final = 4.0
_END_S: Final = 60.0


def measure_slow_link(
    link_mbit_s: float = 100,
    n_params: int = 11_000_000,
    wires: Sequence[str] = ("float32", "int8"),
    p: float = 0.1,
    step_s: float = 0.25,
    train_s: float = 40.0,
) -> Result:
    """Train on hosts of this machine whose cables are slow.

    Args:
        link_mbit_s: What the cable of each carries, each way, 10**6 bits per second.
        n_params: Parameters of the model, float32.
        wires: Formats of shares, one after another.
        p: Probability of a push at a step.
        step_s: How long a step sleeps, seconds.
        train_s: How long is measured, once all are in, seconds.
    """
    asked = {"n_params": n_params, "p": p, "step_s": step_s, "train_s": train_s}
    rows: list[Row] = []
    try:
        for wire in wires:
            _log.info("%s over cables of %g Mbit/s", wire, link_mbit_s)
            with hosts(_PEERS, link_mbit_s * 1e6 / 8) as laid:
                rows += _rows(wire, link_mbit_s / 8, _run_all(laid, asked | {"wire": wire}))
    except HostsError as error:
        _log.warning("%s", error)
        rows.append(Row(name="not measured", ours=0, reference=0, unit="MB/s", note=str(error)))
    return Result(
        name="slow-link",
        title=f"{_PEERS} peers, {n_params:,} parameters, p = {p:g}, steps of {step_s * 1e3:g} ms, "
        f"cables of {link_mbit_s:g} Mbit/s",
        rows=tuple(rows),
    )


def _rows(wire: str, link_mb_s: float, found: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    pushes = sum(one["pushes"] for one in found)
    skipped, mixed = (sum(one[name] for one in found) for name in ("skipped", "mixed"))
    longest_ms = max(one["step_ms"] for one in found)
    yield Row(
        name=f"{wire}, sent by each",
        ours=mean(one["sent_mb_s"] for one in found),
        reference=link_mb_s,
        unit="MB/s",
        note=f"what its cable carries; {pushes} pushes, {skipped} skipped, {mixed} shares mixed",
    )
    yield Row(
        name=f"{wire}, steps kept",
        ours=mean(one["kept"] for one in found),
        reference=1.0,
        unit="of 1",
        note=f"steps without any exchange; step() at most {longest_ms:.0f} ms",
    )
    echoes = [ms for one in found for ms in one["echo_ms"]]
    idle = [ms for one in found for ms in one["idle_ms"]]
    if echoes and idle:
        yield Row(
            name=f"{wire}, a datagram there and back, median",
            ours=median(echoes),
            reference=median(idle),
            unit="ms",
            note=f"before any share; p99 {percentile(echoes, 99):.0f} ms beside the shares",
        )


def _run_all(laid: Hosts, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        processes = []
        for index in range(_PEERS):
            words = json.dumps({"index": index, "addresses": laid.addresses, **asked})
            processes.append(stack.enter_context(started(laid, index, run_peer, words)))
        limit_s = _JOIN_S_MAX + asked["train_s"] + _END_S
        return [told_by(process, limit_s) for process in processes]


def run_peer(asked: str) -> None:
    """Be one of the peers, in a process of its own, and print what was found as JSON."""
    torch.set_num_threads(1)
    print(json.dumps(_peer(**json.loads(asked))), flush=True)


def _peer(
    index: int,
    addresses: Sequence[str],
    wire: str,
    n_params: int,
    p: float,
    step_s: float,
    train_s: float,
) -> dict[str, Any]:
    echo = _Echo(addresses[index], addresses[index - 1])
    rule = GoSGD(0.0)
    config = PeerConfig(
        bind=f"tcp://{addresses[index]}:{_PORT}",
        join=() if index == 0 else (f"tcp://{addresses[0]}:{_PORT}",),
        rule=rule,
        linger_s=0,
        leave_s=1,
        join_timeout_s=_JOIN_S_MAX,
        protocol=ProtocolConfig(wire=wire, shared_memory=False),
    )
    with Peer(Flat(n_params), config) as peer:
        while len(peer.live) < _PEERS or peer.queue:
            time.sleep(_ECHO_EVERY_S / 4)
            peer.step()
        peer.stop.wait(3 * _ECHO_EVERY_S)
        idle_ms, rule.p = echo.take(), p
        found = _train(peer, step_s, train_s) | {"idle_ms": idle_ms, "echo_ms": echo.take()}
        until_s = time.monotonic() + _OVER_S
        while time.monotonic() < until_s:
            time.sleep(step_s)
            peer.step()
        return found


def _train(peer: Peer, step_s: float, train_s: float) -> dict[str, Any]:
    before = {name: getattr(peer.counters, name) for name in ("pushes", "skipped", "mixed")}
    sent_bytes, start_s, steps_s = peer.counters.bytes_sent, time.monotonic(), []
    while (taken_s := time.monotonic() - start_s) < train_s:
        time.sleep(step_s)
        stepped_s = time.perf_counter()
        peer.step()
        steps_s.append(time.perf_counter() - stepped_s)
    found: dict[str, Any] = {
        name: getattr(peer.counters, name) - figure for name, figure in before.items()
    }
    found["sent_mb_s"] = (peer.counters.bytes_sent - sent_bytes) / taken_s / 1e6
    return found | {"kept": len(steps_s) * step_s / taken_s, "step_ms": max(steps_s) * 1e3}


class _Echo:
    """Answers datagrams, and times its own to another host: what waits in the cables, these wait
    for."""

    def __init__(self, here: str, there: str) -> None:
        self._there = there
        self._taken_ms: list[float] = []
        self._server = socket(AF_INET, SOCK_DGRAM)
        self._server.bind((here, _ECHO_PORT))
        for serve in (self._answer, self._ask):
            threading.Thread(target=serve, daemon=True).start()

    def take(self) -> list[float]:
        """Round trips since this was last called, ms."""
        taken, self._taken_ms = self._taken_ms, []
        return taken

    def _answer(self) -> None:
        while True:
            self._server.sendto(*self._server.recvfrom(64))

    def _ask(self) -> None:
        with socket(AF_INET, SOCK_DGRAM) as way:
            way.settimeout(2.0)
            while True:
                start_s = time.perf_counter()
                try:
                    way.sendto(b"?", (self._there, _ECHO_PORT))
                    way.recv(64)
                except OSError:
                    pass  # it is not there yet, or the cable dropped it
                else:
                    self._taken_ms.append((time.perf_counter() - start_s) * 1e3)
                time.sleep(_ECHO_EVERY_S)
