"""``soak``: what peers take from their machine while others come and go around them."""

import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import torch

from ...gossip import ONE, Audit, GoSGD, ProtocolConfig, audit, in_units
from ...gossip.config import timing
from ...gossip.effects.ledger import Life
from ...train import Peer, PeerConfig
from ...train.storage.ledger_file import read_ledgers
from ..exchange.processes import Flat, Pipe
from ..results import Result, Row, Vitals, print_drawn, vitals

__all__ = ["measure_soak", "report"]


_N_PARAMS: Final = 100_000
_STEP_S: Final = 0.25
_P: Final = 0.2
_DOWN_S: Final = (0.5, 5.0)
_FOUNDING_S: Final = 300.0
_LEAVING_S: Final = 60.0
# What the killed held is lost for good: with one in 32 of a swarm killed each second, its weight
# would be too little to be halved after a quarter of an hour.
_KILLED: Final = 0.5
_RETURNS: Final = 0.5


@dataclass(slots=True)
class _Place:
    """Room for one peer, and who is in it."""

    id: str
    process: ForkServerProcess
    pipe: Pipe
    address: str = ""
    """Where it listens; empty until it is a member."""


class _Churn:
    """A swarm in a folder: founders that stay, and places in which others come and go.

    All take their steps in their sleep; shares are a little too large for one message. Every
    second peer exchanges over TCP only, the others through shared memory where they can.
    """

    def __init__(self, folder: Path, staying: int, coming: int) -> None:
        self.events: Counter[str] = Counter()
        """What has happened, by ``killed``, ``left``, ``returned`` and ``joined``."""
        self._folder = folder
        self._rng = np.random.default_rng(0)
        # Loading torch for each that comes would be most of the work; it is loaded once.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["rumor.benchmarks.swarm.soak"])
        self._lost: list[Life] = []
        self._count = 0
        founding = {"rendezvous": folder / "meeting", "founders": staying}
        self._staying = [self._start(self._new_id(), **founding) for _ in range(staying)]
        for place in self._staying:
            self._admit(place, _FOUNDING_S)
        self._coming: list[_Place] = [self._come(self._new_id()) for _ in range(coming)]
        self._absent: list[tuple[float, str, str]] = []
        """Who is to come next: when, under which name, and to which address."""

    @property
    def pids(self) -> dict[str, int]:
        """Processes of those that stay, by id."""
        return {place.id: place.process.pid or 0 for place in self._staying}

    def turn(self) -> None:
        """Let one go, and those come whose time it is."""
        for place in self._coming:
            self._admit(place, 0.0)
        now = time.monotonic()
        due = [absent for absent in self._absent if absent[0] <= now]
        self._absent = [absent for absent in self._absent if absent[0] > now]
        for _, id, address in due:
            self._coming.append(self._come(id, address))
        inside = [place for place in self._coming if place.address]
        if inside:
            self._dismiss(inside[int(self._rng.integers(len(inside)))])

    def end(self) -> Audit:
        """End all at once, between two steps, and count every unit from the ledgers on disk."""
        for place in (*self._staying, *self._coming):
            self._admit(place, 0.0)
            if place.address:
                place.pipe.send("stop")
                place.process.join(_LEAVING_S)
            else:
                self._kill(place)
        folders = sorted(path.parent for path in self._folder.glob("*/ledger.jsonl"))
        return audit([a for folder in folders for a in read_ledgers(folder)], self._lost)

    def kill(self) -> None:
        """End all without a word."""
        for place in (*self._staying, *self._coming):
            place.process.kill()
            place.process.join()

    def _dismiss(self, place: _Place) -> None:
        """Kill a peer, or let it leave; somebody takes its place later."""
        self._coming.remove(place)
        id, address = place.id, place.address
        if self._rng.random() < _KILLED:
            # One that was killed comes back: a name that never did would be dialled for ever.
            self._kill(place)
            self.events["killed"] += 1
        else:
            place.pipe.send("leave")
            place.process.join(_LEAVING_S)
            self.events["left"] += 1
            if self._rng.random() >= _RETURNS:
                id, address = self._new_id(), ""
        self.events["returned" if address else "joined"] += 1
        back_s = time.monotonic() + float(self._rng.uniform(*_DOWN_S))
        self._absent.append((back_s, id, address))

    def _kill(self, place: _Place) -> None:
        place.process.kill()
        place.process.join()
        self._lost += [account.life for account in read_ledgers(self._folder / place.id)[-1:]]

    def _admit(self, place: _Place, timeout_s: float) -> None:
        """Note that a peer is a member, if it is."""
        if not place.address and place.pipe.poll(timeout_s):
            place.address = place.pipe.recv()

    def _come(self, id: str, address: str = "") -> _Place:
        known = [place.address for place in self._staying]
        chosen = self._rng.choice(known, size=min(3, len(known)), replace=False)
        given: dict[str, Any] = {"bind": address} if address else {}
        return self._start(id, join=tuple(map(str, chosen)), **given)

    def _start(self, id: str, **given: Any) -> _Place:
        ours, theirs = self._context.Pipe()
        number = int(id.split("-")[1])
        arguments = (theirs, id, self._folder / id, number % 2 == 0, given)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return _Place(id, process, ours)

    def _new_id(self) -> str:
        self._count += 1
        return f"peer-{self._count}"


def _serve(pipe: Pipe, id: str, out: Path, shared_memory: bool, given: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    logging.getLogger("rumor").setLevel(logging.ERROR)
    protocol: dict[str, Any] = {"shared_memory": shared_memory, **timing("local")}
    config = PeerConfig(
        id=id,
        out=out,
        rule=GoSGD(_P),
        linger_s=0,
        protocol=ProtocolConfig(**protocol),
        **given,
    )
    model = Flat(_N_PARAMS)
    with Peer(model, config) as peer:
        pipe.send(peer.address)
        while not pipe.poll(_STEP_S):
            model.drift()
            peer.step()
        if pipe.recv() == "stop":
            os._exit(0)
        peer.leave()


_log = logging.getLogger("rumor.benchmarks")

_MEASURES: Final[Mapping[str, tuple[str, Callable[[Vitals], float]]]] = {
    "PSS": ("MB", lambda look: look.pss_bytes / 1e6),
    "RSS": ("MB", lambda look: look.rss_bytes / 1e6),
    "threads": ("", lambda look: look.threads),
    "open files": ("", lambda look: look.files),
}

_MEANING: Final = {
    "PSS": "Memory of a peer, its part of shared libraries included (PSS)",
    "RSS": "Memory of a peer, shared libraries included whole (RSS)",
    "threads": "Threads of a peer",
    "open files": "Open files and sockets of a peer",
}


@dataclass(frozen=True, slots=True)
class _Soaked:
    """What came of it."""

    times_s: list[float]
    """When peers were looked at, seconds from the start."""
    looks: dict[str, list[Vitals]]
    """At each peer that stayed, by id."""
    events: Mapping[str, int]
    """What the others did."""
    audit: Audit


def _soak(
    folder: Path, *, seconds: float, peers: int, staying: int, every_s: float, look_s: float
) -> _Soaked:
    """Let peers come and go around some that stay, and look at these."""
    churn = _Churn(folder, staying, peers - staying)
    try:
        pids = churn.pids
        start_s = time.monotonic()
        times_s: list[float] = []
        looks: dict[str, list[Vitals]] = {id: [] for id in pids}
        turn_s = look_due_s = start_s
        while (now := time.monotonic()) < start_s + seconds:
            if now >= look_due_s:
                look_due_s += look_s
                times_s.append(now - start_s)
                for id, pid in pids.items():
                    looks[id].append(vitals(pid))
            churn.turn()
            turn_s += every_s
            time.sleep(max(0.0, turn_s - time.monotonic()))
        return _Soaked(times_s, looks, dict(churn.events), churn.end())
    finally:
        churn.kill()


def measure_soak(
    minutes: float = 10,
    peers: int = 32,
    every_s: float = 2.0,
    look_s: float = 5.0,
    picture: Path | str | None = None,
) -> Result:
    """Soak a swarm, and hold the last quarter of the time against the second one.

    The first quarter is passed over: until then, memory is taken for the first time.

    Args:
        minutes: How long.
        peers: How many there are at most at the same time.
        every_s: How often one of them goes, seconds; a quarter of them stay, and are looked at.
        look_s: How often to look, seconds.
        picture: Where to draw what was seen, as PNG; None for nowhere.
    """
    staying = max(2, peers // 4)
    rows: tuple[Row, ...] = (
        Row(name="not measured", ours=0, reference=0, unit="", note="needs Linux's /proc"),
    )
    if sys.platform == "linux":
        _log.info("soak: %d peers for %g minutes", peers, minutes)
        with TemporaryDirectory() as folder:
            found = _soak(
                Path(folder),
                seconds=60 * minutes,
                peers=peers,
                staying=staying,
                every_s=every_s,
                look_s=look_s,
            )
        rows = tuple(_rows(found))
        if picture is not None:
            _draw(found, Path(picture))
    return Result(
        name="soak",
        title=f"{staying} peers that stayed for {minutes:g} minutes while others of {peers} came "
        "and went: the last quarter beside the second",
        columns=("what", "last quarter", "second quarter", "ratio", "unit", "notes"),
        rows=rows,
    )


def _rows(found: _Soaked) -> Iterator[Row]:
    n = len(found.times_s)
    early, late = slice(n // 4, max(n // 4 + 1, n // 2)), slice(min(n - 1, 3 * n // 4), n)
    happened = ", ".join(f"{count} {what}" for what, count in sorted(found.events.items()))
    for what, (unit, of) in _MEASURES.items():
        means = [
            (mean(map(of, looks[late])), mean(map(of, looks[early])))
            for looks in found.looks.values()
        ]
        worst = max(means, key=lambda pair: pair[0] / pair[1])
        lasts, seconds = zip(*means, strict=True)
        for whose, (last, second) in {
            "mean": (mean(lasts), mean(seconds)),
            "who grew most": worst,
        }.items():
            yield Row(
                name=f"{what}, {whose}", ours=last, reference=second, unit=unit, note=happened
            )
    whole = found.audit
    accounted = whole.held + whole.in_flight + whole.stranded + whole.burned + whole.died
    yield Row(
        name="weight in all ledgers",
        ours=accounted / ONE,
        reference=whole.founded / ONE,
        unit="founders",
        note=f"difference in units: {in_units(accounted - whole.founded)}; "
        f"held {whole.held / ONE:.6g}, in flight {whole.in_flight / ONE:.6g}, "
        f"stranded {whole.stranded / ONE:.6g}, burned {whole.burned / ONE:.6g}, "
        f"gone with the dead {whole.died / ONE:.6g}",
    )


def _draw(found: _Soaked, path: Path) -> None:
    from matplotlib import rc_context

    from ...sim.results.pictures.curves import DIM, INK, STYLE, new_figure

    came = ", ".join(f"{count:,} {what}" for what, count in found.events.items() if count)
    with rc_context(STYLE):
        figure = new_figure(8, 8.4, "constrained", dpi=110)
        all_axes = figure.subplots(len(_MEASURES), 1, sharex=True)
        for axes, (what, (unit, of)) in zip(all_axes, _MEASURES.items(), strict=True):
            axes.set_title(_MEANING[what])
            axes.set_ylabel(unit)
            rows = [[of(look) for look in looks] for looks in found.looks.values()]
            for row in rows:
                axes.plot(found.times_s, row, color=DIM, alpha=0.5, linewidth=0.8)
            means = [mean(values) for values in zip(*rows, strict=True)]
            axes.plot(found.times_s, means, color=INK, linewidth=1.8)
            axes.annotate(
                f"{means[-1]:.4g} {unit}",
                (found.times_s[-1], means[-1]),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                annotation_clip=False,
            )
            axes.set_ylim(0, 1.15 * max(map(max, rows)) or 1)
        all_axes[-1].set_xlabel("seconds; thin lines are peers, thick ones their mean")
        title = f"{len(found.looks)} peers that stayed; of others, {came or 'none came or went'}"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        figure.savefig(path)


def report(minutes: float, peers: int, picture: Path | str) -> None:
    """Soak a swarm, and print and draw what came of it; arguments as for `measure_soak`."""
    # Every death would be a line; what this benchmark says is few.
    logging.getLogger("rumor").setLevel(logging.ERROR)
    result = measure_soak(minutes, peers, picture=picture)
    print_drawn(result, picture)
