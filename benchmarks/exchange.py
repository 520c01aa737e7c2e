"""``exchange``: a share's way from snapshot to mixed between two processes, beside its limits."""

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any, Final, Self

import torch
import zmq
from torch import nn

from ..gossip import ONE, GoSGD, ProtocolConfig, RuleContext
from ..train import Peer, PeerConfig
from ..train.tensors.buffers import keep_pages
from .results import Result, Row, alternate, rate_gb_s, timed

__all__ = [
    "FRAME_BYTES",
    "Flat",
    "OnDemand",
    "Partner",
    "Pipe",
    "RawReceiver",
    "RawSender",
    "Way",
    "admit",
    "measure_exchange",
    "partner",
    "partners",
]


FRAME_BYTES: Final = 1 << 20

_FRAMES_MAX: Final = 8
_FRACTION: Final = 0.25


class _Pair:
    """One end of a connection, and room for one vector in flight."""

    def __init__(self, n_params: int) -> None:
        self.vector = torch.ones(n_params)
        self.staged = torch.zeros(n_params)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.PAIR)
        self.socket.setsockopt(zmq.SNDHWM, _FRAMES_MAX)
        self.socket.setsockopt(zmq.RCVHWM, _FRAMES_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)


class RawSender(_Pair):
    """Copies its float32 vector out and sends it in frames, to where a `RawReceiver` listens."""

    def __init__(self, n_params: int, address: str) -> None:
        super().__init__(n_params)
        self.socket.connect(address)

    def send_to(self, other: "Partner") -> float:
        """Send the vector to a process that is told so; seconds until it says when it was mixed."""
        other.say("raw")
        start_s = time.monotonic()
        self.staged.copy_(self.vector)
        payload = self.staged.numpy().data.cast("B")
        for start in range(0, len(payload), FRAME_BYTES):
            self.socket.send(payload[start : start + FRAME_BYTES], copy=False)
        return float(other.hear()) - start_s


class RawReceiver(_Pair):
    """Receives into a buffer that it keeps, and mixes at the end."""

    def __init__(self, n_params: int) -> None:
        super().__init__(n_params)
        self.socket.bind("tcp://127.0.0.1:*")
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def receive(self) -> float:
        """Take in one vector; when it was mixed, seconds on the clock of all processes."""
        room = self.staged.numpy().data.cast("B")
        for start in range(0, len(room), FRAME_BYTES):
            self.socket.recv_into(room[start : start + FRAME_BYTES])
        self.vector.lerp_(self.staged, _FRACTION)
        return time.monotonic()


if TYPE_CHECKING:
    Pipe = Connection[Any, Any]
else:
    # It takes no parameters at run time.
    Pipe = Connection
"""A process's end of the way to the one that started it."""

_EXIT_S: Final = 20.0
_PATIENCE_S: Final = 120.0
_ADMIT_POLL_S: Final = 0.002


class Flat(nn.Module):
    """Nothing but so many float32 parameters."""

    def __init__(self, n_params: int) -> None:
        super().__init__()
        self.flat = nn.Parameter(torch.ones(n_params))

    @torch.no_grad()
    def drift(self) -> None:
        """Change every number a little, as training would."""
        noise = torch.empty_like(self.flat).uniform_(-0.01, 0.01)
        self.flat.add_(noise)


class Partner:
    """Another process, and our end of the pipe to it."""

    def __init__(self, pipe: Pipe, process: SpawnProcess) -> None:
        self._pipe = pipe
        self._process = process

    def say(self, words: Any) -> None:
        """Tell it something."""
        self._pipe.send(words)

    def speaks(self, timeout_s: float = 0.0) -> bool:
        """Whether it has said something, or does within so many seconds."""
        return self._pipe.poll(timeout_s)

    def hear(self, timeout_s: float = _PATIENCE_S) -> Any:
        """Wait for what it says next.

        Raises:
            TimeoutError: It says nothing for so many seconds, or has ended.
        """
        try:
            if self._pipe.poll(timeout_s):
                return self._pipe.recv()
        except (EOFError, ConnectionError):
            raise TimeoutError("another process of the benchmark has ended") from None
        raise TimeoutError("another process of the benchmark does not answer")

    def ask(self, words: Any) -> Any:
        """Tell it something, and wait for its answer."""
        self.say(words)
        return self.hear()

    @property
    def pid(self) -> int:
        """Its number at the system."""
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.join()

    def dismiss(self) -> None:
        """Tell it to end, unless it has."""
        if self._process.is_alive():
            try:
                self.say(None)
            except BrokenPipeError:
                pass

    def end(self, patience_s: float) -> None:
        """Wait for its end, and bring it about where it does not come."""
        self._process.join(patience_s)
        self.kill()
        self._pipe.close()


@contextmanager
def partner(serve: Callable[..., None], *arguments: Any) -> Iterator[Partner]:
    """Run ``serve(pipe, *arguments)`` in a process of its own, as `partners` does."""
    with partners(serve, [arguments]) as (other,):
        yield other


@contextmanager
def partners(
    serve: Callable[..., None], arguments: Sequence[Sequence[Any]]
) -> Iterator[list[Partner]]:
    """Run several processes, with torch on one thread in each; they are told to end together.

    Args:
        serve: A function of a module; it ends when it reads None from the pipe that it is given.
        arguments: What it is given beside the pipe, in each process.
    """
    spawn = multiprocessing.get_context("spawn")
    patience_s = 0.0
    with ExitStack() as stack:
        started = []
        for given in arguments:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_run, args=(serve, theirs, *given), daemon=True)
            process.start()
            theirs.close()
            started.append(Partner(ours, process))
            stack.callback(lambda one: one.end(patience_s), started[-1])
        yield started
        # After an error nobody has to be polite.
        patience_s = _EXIT_S
        for one in started:
            one.dismiss()


def _run(serve: Callable[..., None], pipe: Pipe, *arguments: Any) -> None:
    torch.set_num_threads(1)
    serve(pipe, *arguments)


def admit(peer: Peer, newcomer: Partner) -> Any:
    """Step until a newcomer has had its copy and says something; return that."""
    while not newcomer.speaks(_ADMIT_POLL_S):
        peer.step()
    return newcomer.hear()


_log = logging.getLogger("rumor.benchmarks")

_NAP_S: Final = 0.5
_WEIGHT: Final = ONE >> 20

# One push of the largest vector takes as long as many of the smallest: as many bytes for each.
_BYTES_PER_TURN: Final = 100_000_000
_PUSHES_MAX: Final = 10


class OnDemand:
    """A rule that pushes next to no weight when it is told to, and mixes whatever comes."""

    name = "on-demand"
    registers: tuple[str, ...] = ()
    outstanding_max = 1

    def __init__(self) -> None:
        self.wanted = False
        """Whether a push shall be made as soon as there is credit."""
        self.pushed_s = 0.0
        """When the last one was decided, right before its snapshot; seconds, monotonic."""

    def step(self, turn: RuleContext) -> None:
        """Take one turn."""
        for share in turn.shares():
            turn.mix(share)
        peer = turn.draw() if self.wanted else None
        if peer is not None:
            turn.push(peer, _WEIGHT)
            self.wanted, self.pushed_s = False, turn.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How shares go from one process to the other."""

    name: str
    wire: str = "float32"
    shared_memory: bool = False

    def config(self, **given: Any) -> PeerConfig:
        """The settings of a peer at either end."""
        protocol = ProtocolConfig(wire=self.wire, shared_memory=self.shared_memory)
        return PeerConfig(linger_s=0, leave_s=1, protocol=protocol, **given)


WAYS: Final = (
    Way(name="TCP"),
    Way(name="shared memory", shared_memory=True),
    Way(name="TCP, bfloat16", wire="bfloat16"),
    Way(name="TCP, int8", wire="int8"),
)

_NOTES: Final = {
    "raw": "pyzmq over TCP: copy out, frames of 1 MiB, recv_into, lerp_; nothing checked",
    "memcpy": "copy_ on one thread",
    "lerp": "lerp_ on one thread",
}


def measure_exchange(
    sizes_mb: Sequence[float] = (4, 44, 100, 400), rounds: int = 7, ways: Sequence[Way] = WAYS
) -> Result:
    """Push vectors from this process into another on this machine.

    Args:
        sizes_mb: Sizes of the vector in float32, 10**6 bytes.
        rounds: How often each way takes its turn.
        ways: Each has a pair of peers of its own, and takes turns with the references.
    """
    torch.set_num_threads(1)
    # As `rumor peer` does. The references live in the same processes.
    keep_pages()
    rows = [row for size_mb in sizes_mb for way in ways for row in _measure(size_mb, way, rounds)]
    return Result(
        name="exchange",
        title="From snapshot to mixed between two processes of one machine: the vector's float32 "
        "bytes per second, whatever travels",
        columns=("vector and way", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
    )


def _measure(size_mb: float, way: Way, rounds: int) -> list[Row]:
    _log.info("exchanging %g MB: %s", size_mb, way.name)
    size_bytes = int(size_mb * 1e6) // 4 * 4
    found = _measure_in_turn(size_bytes, way, rounds)
    rates = {name: rate_gb_s(size_bytes, taken_s) for name, taken_s in found.items()}
    ours = rates.pop("rumor")
    return [
        Row(
            name=f"{size_mb:g} MB, {way.name}, beside {name}",
            ours=ours,
            reference=rate,
            unit="GB/s",
            note=_NOTES[name],
        )
        for name, rate in rates.items()
        # A copy within one process is a limit of what sends all bytes, not of a smaller format.
        if name == "raw" or way.wire == "float32"
    ]


def _measure_in_turn(size_bytes: int, way: Way, rounds: int) -> Mapping[str, Sequence[float]]:
    rule, n_params = OnDemand(), size_bytes // 4
    pushes = max(1, min(_PUSHES_MAX, _BYTES_PER_TURN // size_bytes))
    x, y = torch.ones(n_params), torch.zeros(n_params)
    model = Flat(n_params)
    with (
        Peer(model, way.config(rule=rule)) as peer,
        partner(_serve, peer.address, n_params, way) as other,
        RawSender(n_params, admit(peer, other)) as raw,
    ):
        # Away from the anchor: a difference that is nothing could cost less than one that is.
        model.drift()
        ways: dict[str, Callable[[], Sequence[float]]] = {
            "rumor": lambda: [_push(peer, rule, other) for _ in range(pushes)],
            "raw": lambda: [raw.send_to(other) for _ in range(pushes)],
            "memcpy": lambda: timed(lambda: y.copy_(x), pushes),
            "lerp": lambda: timed(lambda: y.lerp_(x, 0.25), pushes),
        }
        return alternate(ways, rounds)


def _push(peer: Peer, rule: OnDemand, other: Partner) -> float:
    """Push once; seconds from before the snapshot to after the mixing."""
    other.say("rumor")
    rule.wanted = True
    peer.step()
    while rule.wanted:
        # The answer to the share before is still on its way.
        peer.wait(_NAP_S)
        peer.step()
    return float(other.hear()) - rule.pushed_s


def _serve(pipe: Pipe, address: str, n_params: int, way: Way) -> None:
    keep_pages()
    config = way.config(join=(address,), rule=GoSGD(0.0))
    with Peer(Flat(n_params), config) as peer, RawReceiver(n_params) as raw:
        pipe.send(raw.address)
        while (asked := pipe.recv()) is not None:
            pipe.send(raw.receive() if asked == "raw" else _mix(peer))


def _mix(peer: Peer) -> float:
    """Step until one more share was mixed; when that was, seconds, monotonic."""
    before = peer.counters.mixed
    while peer.counters.mixed == before:
        peer.wait(_NAP_S)
        peer.step()
    return time.monotonic()
