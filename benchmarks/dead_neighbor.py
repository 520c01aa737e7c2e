"""Memory that pushing toward a dead neighbor costs: ours, and plain ZeroMQ's."""

import os
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
import zmq

from ..gossip import ONE, GoSGD, ProtocolConfig, Turn
from ..train import Peer, PeerConfig
from .partner import Flat, Pipe, partner, partners

__all__ = ["Aimed", "available_bytes", "fitting", "growth", "plain_growth", "resident_bytes"]

_WEIGHT: Final = ONE >> 20
_WARM_PUSHES: Final = 10
_STEP_S: Final = 0.002
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

    def step(self, turn: Turn) -> None:
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
        with partners(_serve, roles) as (measured, living, dying):
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


def _serve(pipe: Pipe, role: str, folder: str, n_params: int, shared_memory: bool) -> None:
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
                time.sleep(_STEP_S)
                peer.step()


def _push(pipe: Pipe, peer: Peer, rule: Aimed) -> None:
    _, pushes = pipe.recv()
    while rule.pushed < pushes:
        time.sleep(_STEP_S)
        peer.step()
    pipe.send("warm")
    _, pushes = pipe.recv()
    rule.pushed = rule.skipped = 0
    before = most = resident_bytes()
    while rule.pushed + rule.skipped < pushes:
        time.sleep(_STEP_S)
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
        time.sleep(_STEP_S)
        payload: Any = vector.clone().numpy()
        try:
            socket.send(payload, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            # Its high-water mark is reached.
            return


def fitting(pushes: int, size_bytes: int, available: int) -> int:
    """As many pushes as take half of the available memory at most."""
    return max(1, min(pushes, available // 2 // size_bytes))
