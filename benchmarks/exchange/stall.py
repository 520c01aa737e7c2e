"""``stall``: what gossip takes from a training thread that has other things to do."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ...gossip import GoSGD
from ...train import Peer, PeerConfig
from ..results import Result, Row, alternate, percentile, timed
from ..rivals import averaging
from ..rivals.rivals import DECENT, HIVEMIND, Rival, RivalError
from ..rivals.rivals import measure as measure_rival
from .processes import Flat, Partner, Pipe, admit, partner, partners, settled

__all__ = [
    "RIVALS",
    "Burst",
    "measure_stall",
    "measure_straggler",
    "products",
    "sleeping",
]


@dataclass(slots=True)
class Burst:
    """Some steps in a row."""

    steps_s: list[float] = field(default_factory=list)
    """How long each took as a whole."""
    stalls_s: list[float] = field(default_factory=list)
    """The part of each that was gossip."""

    pushes: int = 0
    """Shares that were pushed meanwhile."""
    skipped: int = 0
    """Pushes that were due and not made."""
    mixed: int = 0
    """Shares that were mixed in."""

    @property
    def rate(self) -> float:
        """Steps per second."""
        return len(self.steps_s) / sum(self.steps_s)

    def step(self, gossip: Callable[[], None], work: Callable[[], None]) -> None:
        """Take one more: what the optimizer does, then gossip."""
        start_s = time.perf_counter()
        work()
        worked_s = time.perf_counter()
        gossip()
        end_s = time.perf_counter()
        self.steps_s.append(end_s - start_s)
        self.stalls_s.append(end_s - worked_s)


def _train(gossip: Callable[[], None], work: Callable[[], None], steps: int) -> Burst:
    burst = Burst()
    for _ in range(steps):
        burst.step(gossip, work)
    return burst


def sleeping(step_s: float) -> Callable[[], None]:
    """A step of an optimizer on a device of its own, which leaves all cores alone."""
    return partial(time.sleep, step_s)


_WIDTH: Final = 1024
_PROBES: Final = 5


def products(device: str, step_s: float) -> Callable[[], None]:
    """A step that keeps a device busy for as long: matrix products, until it is done with them."""
    x = torch.randn(_WIDTH, _WIDTH, device=device)
    out = torch.empty_like(x)

    def work(times: int) -> None:
        for _ in range(times):
            torch.mm(x, x, out=out)
        settled(out)

    once_s = median(timed(lambda: work(_PROBES), _PROBES)) / _PROBES
    return partial(work, max(1, round(step_s / once_s)))


def _working(device: str, step_s: float) -> Callable[[], None]:
    here = torch.device(device).type == "cpu"
    return sleeping(step_s) if here else products(device, step_s)


def _no_gossip() -> None:
    pass


_log = logging.getLogger("rumor.benchmarks")

RIVALS: Final = (HIVEMIND, DECENT)
"""Who is held beside it."""


def measure_stall(
    sizes: Sequence[int] = (1_000_000, 11_000_000, 44_000_000),
    ps: Sequence[float] = (0.1, 1.0),
    step_s: float = 0.05,
    steps: int = 50,
    rounds: int = 4,
    rivals: Sequence[Rival] = RIVALS,
    rival_rounds: int = 5,
    cache: Path | None = None,
    device: str = "cpu",
) -> Result:
    """Measure `Peer.step` on the training thread, beside a neighbor that trains as fast.

    A step of the optimizer is a sleep, so that cores do not limit and only gossip is seen. On a
    GPU it is work for that, and what gossip takes is its time there, too; the neighbor's model
    lies in host memory, for in a swarm it has a GPU of its own.

    Args:
        sizes: Parameters of the model.
        ps: Probabilities of a push at a step, the same in both processes.
        step_s: How long an optimizer step sleeps, seconds.
        steps: Taken together, with gossip or without, each time.
        rounds: How often either has its turn.
        rivals: Who does the same work, two peers on this machine, once every 1 / p steps.
        rival_rounds: Their rounds of averaging that count, at each size and p.
        cache: Where rivals are installed, as `rivals.install` takes it.
        device: Where the model lies.
    """
    torch.set_num_threads(1)
    rows: list[Row] = []
    for n_params in sizes:
        ours = [_measure(n_params, p, step_s, steps, rounds, device) for p in ps]
        rows.extend(row for found in ours for row in _own_rows(found))
        for rival in rivals:
            asked = {
                "rival": rival.name,
                "n_params": n_params,
                "periods": [max(1, round(1 / p)) for p in ps],
                "step_s": step_s,
                "rounds": rival_rounds,
            }
            rows.extend(_beside(ours, rival, asked, cache))
    return Result(
        name="stall",
        title=f"What averaging takes from a training thread, optimizer steps of {step_s * 1e3:g} "
        "ms, two peers",
        rows=tuple(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What one size and one probability came to."""

    name: str
    gossiping: list[Burst]
    bare: list[Burst]

    @property
    def stalls_s(self) -> list[float]:
        return [stall_s for burst in self.gossiping for stall_s in burst.stalls_s]

    @property
    def rate(self) -> float:
        return median(burst.rate for burst in self.gossiping)

    @property
    def exchange_s(self) -> float:
        """The training thread's time for one exchange: a share pushed and a share mixed."""
        exchanges = sum(burst.pushes + burst.mixed for burst in self.gossiping) / 2
        return sum(self.stalls_s) / max(1.0, exchanges)


def _measure(
    n_params: int, p: float, step_s: float, steps: int, rounds: int, device: str
) -> _Found:
    _log.info("stepping: %d parameters, p = %g", n_params, p)
    config = PeerConfig(rule=GoSGD(p), linger_s=0, leave_s=1)
    model, work = Flat(n_params, device), _working(device, step_s)
    with (
        Peer(model, config) as peer,
        partner(_serve, peer.address, n_params, p, step_s) as other,
    ):
        admit(peer, other)

        def gossip() -> None:
            peer.step()
            settled(model.flat)

        ways = {
            "with": lambda: [_beside_partner(peer, other, gossip, work, steps)],
            "without": lambda: [_train(_no_gossip, work, steps)],
        }
        found = alternate(ways, rounds)
    name = f"{n_params / 1e6:g} M, p = {p:g}"
    return _Found(name=name, gossiping=found["with"], bare=found["without"])


def _own_rows(found: _Found) -> Iterator[Row]:
    stalls_ms = [stall_s * 1e3 for stall_s in found.stalls_s]
    steps_ms = [taken_s * 1e3 for burst in found.bare for taken_s in burst.steps_s]
    yield Row(
        name=f"{found.name}: step(), median",
        ours=median(stalls_ms),
        reference=median(steps_ms),
        unit="ms",
        note="the whole step without gossip",
    )
    yield Row(
        name=f"{found.name}: step(), p99",
        ours=percentile(stalls_ms, 99),
        reference=percentile(steps_ms, 99),
        unit="ms",
        note="p99 of the whole step without gossip",
    )
    pushes, skipped, mixed = (
        sum(getattr(burst, what) for burst in found.gossiping)
        for what in ("pushes", "skipped", "mixed")
    )
    yield Row(
        name=f"{found.name}: kept",
        ours=found.rate,
        reference=median(burst.rate for burst in found.bare),
        unit="steps/s",
        note=f"without gossip; {pushes} pushes, {skipped} skipped, {mixed} shares mixed in "
        f"{len(stalls_ms)} steps",
    )


def _beside(
    ours: Sequence[_Found], rival: Rival, asked: dict[str, Any], cache: Path | None
) -> Iterator[Row]:
    _log.info("stepping: %s", rival.name)
    try:
        theirs = measure_rival(rival, averaging.__file__, asked, {"OMP_NUM_THREADS": "1"}, cache)
    except RivalError as error:
        _log.warning("%s", error)
        missing = _Theirs(f"{rival.name} was not measured: {error}")
        yield from (row for found in ours for row in _rows(found, rival.name, missing))
        return
    taken = zip(asked["periods"], theirs["stalls_s"], theirs["walls_s"], strict=True)
    for found, one in zip(ours, taken, strict=True):
        yield from _rows(found, rival.name, _Theirs(theirs["engine"], *one))


@dataclass(frozen=True, slots=True)
class _Theirs:
    """What a rival came to at one size and one period; all nothing where it was not measured."""

    note: str
    period: int = 1
    """Steps from one round of averaging to the next."""
    stalls_s: Sequence[float] = (0.0,)
    wall_s: float = float("inf")


def _rows(found: _Found, name: str, theirs: _Theirs) -> Iterator[Row]:
    yield Row(
        name=f"{found.name}: for one exchange, beside {name}",
        ours=found.exchange_s * 1e3,
        reference=mean(theirs.stalls_s) * theirs.period * 1e3,
        unit="ms",
        note=f"{theirs.note}: a round of averaging; ours: one share pushed, one mixed",
    )
    yield Row(
        name=f"{found.name}: p99 of a step, beside {name}",
        ours=percentile(found.stalls_s, 99) * 1e3,
        reference=percentile(theirs.stalls_s, 99) * 1e3,
        unit="ms",
        note=theirs.note,
    )
    yield Row(
        name=f"{found.name}: kept, beside {name}",
        ours=found.rate,
        reference=len(theirs.stalls_s) / theirs.wall_s,
        unit="steps/s",
        note=theirs.note,
    )


def _beside_partner(
    peer: Peer, other: Partner, gossip: Callable[[], None], work: Callable[[], None], steps: int
) -> Burst:
    before = replace(peer.counters)
    other.say(steps)
    burst = _train(gossip, work, steps)
    other.hear()
    burst.pushes = peer.counters.pushes - before.pushes
    burst.skipped = peer.counters.skipped - before.skipped
    burst.mixed = peer.counters.mixed - before.mixed
    return burst


def _serve(pipe: Pipe, address: str, n_params: int, p: float, step_s: float) -> None:
    config = PeerConfig(join=(address,), rule=GoSGD(p), linger_s=0, leave_s=1)
    with Peer(Flat(n_params), config) as peer:
        pipe.send("joined")
        while (steps := pipe.recv()) is not None:
            _train(peer.step, sleeping(step_s), steps)
            pipe.send("done")


_PATIENCE_S: Final = 60.0


class _First(nn.Module):
    """A loss whose gradient costs next to nothing."""

    def __init__(self, n_params: int) -> None:
        super().__init__()
        self.model = Flat(n_params)

    def forward(self) -> Tensor:
        """The first parameter."""
        return self.model.flat[0]


def _serve_ddp(
    pipe: Pipe, rank: int, pace_s: float, peers: int, folder: str, n_params: int, p: float
) -> None:
    """Train when told to, in step with the others."""
    distributed.init_process_group(
        "gloo",
        init_method=(Path(folder) / "meeting").as_uri(),
        rank=rank,
        world_size=peers,
        timeout=timedelta(seconds=_PATIENCE_S),
    )
    model = DistributedDataParallel(_First(n_params))
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        _, start_s, end_s = asked
        time.sleep(max(0.0, start_s - time.monotonic()))
        steps = 0
        began_s = time.monotonic()
        go_on = torch.ones(1)
        while go_on.item():
            time.sleep(pace_s)
            model().backward()
            steps += 1
            # All must stop at the same step: the first one's clock decides.
            go_on.fill_(float(time.monotonic() < end_s))
            distributed.broadcast(go_on, 0)
        pipe.send(steps / (time.monotonic() - began_s))
    distributed.destroy_process_group()


# All begin when the last has been told to.
_HEAD_START_S: Final = 0.1


def measure_straggler(
    peers: int = 4,
    slowdown: float = 10.0,
    step_s: float = 0.02,
    n_params: int = 1_000_000,
    p: float = 0.1,
    burst_s: float = 5.0,
    rounds: int = 4,
) -> Result:
    """Count the fleet's samples per second where one peer is slow; a step is one sample.

    A step of the optimizer is a sleep, so that cores do not limit.

    Args:
        peers: How many.
        slowdown: How many times as long the last one's steps take.
        step_s: How long a step of the others sleeps, seconds.
        n_params: Parameters of the model.
        p: Probability of a push at a step.
        burst_s: How long each way runs at a time, seconds.
        rounds: How often each has its turn.
    """
    paces_s = [*[step_s] * (peers - 1), step_s * slowdown]
    with (
        _started(_serve_straggler, paces_s, n_params, p) as fleet,
        _started(_serve_ddp, paces_s, n_params, p) as barrier,
    ):
        _log.info("straggling: %d peers, one %g times slower", peers, slowdown)
        ways = {
            "alone": lambda: [_rates(fleet, "alone", burst_s)],
            "rumor": lambda: [_rates(fleet, "gossip", burst_s)],
            "ddp": lambda: [_rates(barrier, "train", burst_s)],
        }
        found = alternate(ways, rounds)
    return Result(
        name="straggler",
        title=f"Samples per second of {peers} peers, one {slowdown:g} times slower; steps of "
        f"{step_s * 1e3:g} ms and {step_s * slowdown * 1e3:g} ms, {n_params / 1e6:g} M parameters",
        columns=("what", "fleet", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(_straggler_rows(found, p)),
    )


def _straggler_rows(found: dict[str, list[list[float]]], p: float) -> Iterator[Row]:
    fleets = {way: median(sum(rates) for rates in bursts) for way, bursts in found.items()}
    slowest = {way: median(rates[-1] for rates in bursts) for way, bursts in found.items()}
    fast = {way: median(sum(rates[:-1]) for rates in bursts) for way, bursts in found.items()}
    alone = "the sum of what each does alone"
    yield _row(f"rumor, p = {p:g}", fleets["rumor"], fleets["alone"], alone)
    yield _row("torch DDP over gloo", fleets["ddp"], fleets["alone"], alone)
    yield _row("rumor beside DDP", fleets["rumor"], fleets["ddp"], "torch DDP over gloo")
    yield _row("rumor, the fast ones", fast["rumor"], fast["alone"], "the same, alone")
    yield _row("rumor, the slow one", slowest["rumor"], slowest["alone"], "the same, alone")


def _row(name: str, ours: float, reference: float, note: str) -> Row:
    return Row(name=name, ours=ours, reference=reference, unit="samples/s", note=note)


def _rates(fleet: Sequence[Partner], how: str, burst_s: float) -> list[float]:
    """Let all run for a while at the same time; steps per second of each."""
    start_s = time.monotonic() + _HEAD_START_S
    for one in fleet:
        one.say((how, start_s, start_s + burst_s))
    return [float(one.hear()) for one in fleet]


@contextmanager
def _started(
    serve: Callable[..., None], paces_s: Sequence[float], n_params: int, p: float
) -> Iterator[list[Partner]]:
    with TemporaryDirectory() as folder:
        given = [(i, pace_s, len(paces_s), folder, n_params, p) for i, pace_s in enumerate(paces_s)]
        with partners(serve, given) as fleet:
            for one in fleet:
                one.hear()
            yield fleet


def _serve_straggler(
    pipe: Pipe, rank: int, pace_s: float, peers: int, folder: str, n_params: int, p: float
) -> None:
    config = PeerConfig(
        rendezvous=Path(folder), founders=peers, rule=GoSGD(p), linger_s=0, leave_s=1
    )
    with Peer(Flat(n_params), config) as peer:
        pipe.send("founded")
        while (asked := pipe.recv()) is not None:
            how, start_s, end_s = asked
            time.sleep(max(0.0, start_s - time.monotonic()))
            burst = Burst()
            while time.monotonic() < end_s:
                burst.step(peer.step if how == "gossip" else _no_gossip, sleeping(pace_s))
            pipe.send(burst.rate)
