"""``exchange``: a share's way from snapshot to mixed between two processes, beside its limits."""

import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from ...gossip import ONE, ConfigError, GoSGD, ProtocolConfig, RuleContext
from ...gossip.transport.keys.curve import has_libsodium
from ...gossip.transport.keys.key import Key
from ...gossip.transport.keys.roster import Roster
from ...train import Peer, PeerConfig
from ...train.tensors.buffers import keep_pages
from ..results import Result, Row, alternate, rate_gb_s, timed
from . import raw
from .processes import Flat, Partner, Pipe, admit, cpu_ns_by_thread, partner, settled
from .raw import RawReceiver, RawSender

__all__ = ["OnDemand", "Way", "measure_exchange"]


_log = logging.getLogger("rumor.benchmarks")

_NAP_S: Final = 0.5
_SENDER: Final = "sender"
_RECEIVER: Final = "receiver"
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
    keys: bool = False
    """Whether all is encrypted, the references as well."""

    def make_keys(self, folder: Path) -> None:
        """Put a key for each end, and the roster that lists both, into a folder."""
        if not self.keys:
            return
        sender, receiver = keys = [Key.generate(end) for end in (_SENDER, _RECEIVER)]
        for key in keys:
            key.write(folder / f"{key.name}.key")
        roster = Roster.init(sender).with_machines(sender, [(receiver.name, receiver.public)])
        roster.write(folder / "roster")

    def config(self, end: str, folder: Path, **given: Any) -> PeerConfig:
        """The settings of the peer at one end; its keys lie in *folder*."""
        protocol = ProtocolConfig(wire=self.wire, shared_memory=self.shared_memory)
        if self.keys:
            given |= {"key": folder / f"{end}.key", "roster": folder / "roster"}
        return PeerConfig(linger_s=0, leave_s=1, protocol=protocol, **given)


WAYS: Final = (
    Way(name="TCP"),
    Way(name="shared memory", shared_memory=True),
    Way(name="TCP, bfloat16", wire="bfloat16"),
    Way(name="TCP, int8", wire="int8"),
    Way(name="TCP, keys", keys=True),
)

_RAW: Final = "pyzmq over TCP, nothing checked, frames of 1 MiB"
_LIBSODIUM: Final = {True: "libsodium", False: "no libsodium", None: "libsodium or not"}
_NOTES: Final = {
    "raw plain": f"{_RAW}: copy out, recv_into, lerp_",
    "raw pipelined": f"{_RAW}: copied out, sent, received and mixed one by one",
    "raw held": f"{_RAW}: likewise, and mixed from the message",
    "memcpy": "copy_ on one thread, or on the device",
    "lerp": "lerp_ on one thread, or on the device",
}


def measure_exchange(
    sizes_mb: Sequence[float] = (4, 44, 100, 400),
    rounds: int = 7,
    ways: Sequence[Way] = WAYS,
    device: str = "cpu",
) -> Result:
    """Push vectors from this process into another on this machine.

    Args:
        sizes_mb: Sizes of the vector in float32, 10**6 bytes.
        rounds: How often each way takes its turn.
        ways: Each has a pair of peers of its own, and takes turns with the references.
        device: Where the vectors of both lie; those of raw pyzmq lie in host memory.
    """
    torch.set_num_threads(1)
    # As `rumor peer` does. The references live in the same processes.
    keep_pages(messages=True)
    pairs = [(size_mb, way) for size_mb in sizes_mb for way in ways]
    rows = [row for size_mb, way in pairs for row in _measure(size_mb, way, rounds, device)]
    return Result(
        name="exchange",
        title="From snapshot to mixed between two processes of one machine: the vector's float32 "
        "bytes per second, whatever travels, and the processor time of a push in both processes",
        columns=("vector and way", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
    )


def _measure(size_mb: float, way: Way, rounds: int, device: str) -> list[Row]:
    _log.info("exchanging %g MB: %s", size_mb, way.name)
    size_bytes = int(size_mb * 1e6) // 4 * 4
    title = f"{size_mb:g} MB, {way.name}"
    try:
        found, cpu = _measure_in_turn(size_bytes, way, rounds, device)
    except ConfigError as error:
        # Keys need a library.
        return [
            Row(name=title, ours=0.0, reference=0.0, unit="GB/s", note=f"not measured: {error}")
        ]
    rates = {name: rate_gb_s(size_bytes, taken_s) for name, taken_s in found.items()}
    ours = rates.pop("rumor")
    rows = [
        Row(name=f"{title}, beside {name}", ours=ours, reference=rate, unit="GB/s", note=note)
        for name, rate in rates.items()
        # A copy within one process is a limit of what sends all bytes, not of a smaller format.
        if (note := _note(name, way)) and (name.startswith("raw") or way.wire == "float32")
    ]
    per_push = {name: one.per_push_ms() for name, one in cpu.items()}
    mine = per_push.pop("rumor")
    return rows + [
        Row(
            name=f"{title}, processor, beside {name}",
            ours=sum(mine.values()),
            reference=sum(theirs.values()),
            unit="ms",
            note=f"{_listed(mine)}; {name}: {_listed(theirs)}",
        )
        for name, theirs in per_push.items()
        if theirs
    ]


def _note(name: str, way: Way) -> str:
    if way.keys and name.startswith("raw"):
        return f"{_NOTES[name]}; with CURVE ({_LIBSODIUM[has_libsodium()]})"
    return _NOTES[name]


def _listed(taken_ms: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {ms:.1f}" for name, ms in taken_ms.items() if ms >= 0.05)


@dataclass(slots=True)
class _Cpu:
    """What one way took of the processor, turn by turn.

    Args:
        pushes: Of one turn.
        other: The process at the other end.
    """

    pushes: int
    other: Partner
    turns: list[Counter[str]] = field(default_factory=list)
    """Nanoseconds, by end and thread."""

    def turn(self, push: Callable[[], float]) -> Sequence[float]:
        """Push several times; how long each took, seconds."""
        before = self._so_far()
        taken_s = [push() for _ in range(self.pushes)]
        self.turns.append(self._so_far() - before)
        return taken_s

    def per_push_ms(self) -> dict[str, float]:
        """Medians over the turns but the first, which fills buffers."""
        counted = self.turns[1:]
        names = dict.fromkeys(name for turn in counted for name in turn)
        return {name: median(turn[name] for turn in counted) / self.pushes / 1e6 for name in names}

    def _so_far(self) -> Counter[str]:
        ends = {"sender": cpu_ns_by_thread(), "receiver": self.other.ask("cpu")}
        found: Counter[str] = Counter()
        for end, threads in ends.items():
            found.update({f"{end}'s {name}": taken_ns for name, taken_ns in threads.items()})
        return found


def _measure_in_turn(
    size_bytes: int, way: Way, rounds: int, device: str
) -> tuple[Mapping[str, Sequence[float]], Mapping[str, _Cpu]]:
    rule, n_params = OnDemand(), size_bytes // 4
    pushes = max(1, min(_PUSHES_MAX, _BYTES_PER_TURN // size_bytes))
    x, y = torch.ones(n_params), torch.zeros(n_params)
    # On the same device: where that is the CPU, the same memory.
    source, target = x.to(device), y.to(device)
    model = Flat(n_params, device)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        way.make_keys(folder)
        peer = stack.enter_context(Peer(model, way.config(_SENDER, folder, rule=rule)))
        other = stack.enter_context(partner(_serve, peer.address, n_params, way, device, folder))
        addresses = admit(peer, other)
        # Away from the anchor: a difference that is nothing could cost less than one that is.
        model.drift()

        pushing: dict[str, Callable[[], float]] = {"rumor": partial(_push, peer, rule, other)}
        for name, (address, key) in addresses.items():
            sender = stack.enter_context(RawSender(n_params, address, name, (x, y), key))
            pushing[f"raw {name}"] = partial(sender.send_to, other)
        cpu = {name: _Cpu(pushes, other) for name in pushing}
        ways: dict[str, Callable[[], Sequence[float]]] = {
            name: partial(cpu[name].turn, push) for name, push in pushing.items()
        }
        ways["memcpy"] = lambda: timed(lambda: settled(target.copy_(source)), pushes)
        ways["lerp"] = lambda: timed(lambda: settled(target.lerp_(source, 0.25)), pushes)
        return alternate(ways, rounds), cpu


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


def _serve(pipe: Pipe, address: str, n_params: int, way: Way, device: str, folder: Path) -> None:
    keep_pages(messages=True)
    config = way.config(_RECEIVER, folder, join=(address,), rule=GoSGD(0.0))
    model = Flat(n_params, device)
    with Peer(model, config) as peer, ExitStack() as stack:
        buffers = torch.ones(n_params), torch.zeros(n_params)
        ends = {
            name: stack.enter_context(RawReceiver(n_params, name, buffers, keys=way.keys))
            for name in raw.WAYS
        }
        pipe.send({name: (end.address, end.key) for name, end in ends.items()})
        while (asked := pipe.recv()) is not None:
            if asked == "cpu":
                pipe.send(cpu_ns_by_thread())
            else:
                pipe.send(ends[asked].receive() if asked in ends else _mix(peer, model))


def _mix(peer: Peer, model: Flat) -> float:
    """Step until one more share was mixed; when that was, seconds, monotonic."""
    before = peer.counters.mixed
    while peer.counters.mixed == before:
        peer.wait(_NAP_S)
        peer.step()
    settled(model.flat)
    return time.monotonic()
