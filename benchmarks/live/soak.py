"""``soak``: resources that peers use while others join and leave around them."""

import logging
import multiprocessing
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np

from rumor.gossip import Audit, GoSGD, ProtocolConfig, audit
from rumor.gossip.config import timing
from rumor.gossip.effects.ledger import Life
from rumor.gossip.weight import ONE, in_units
from rumor.train import Peer, PeerConfig
from rumor.train.storage.ledger_file import read_ledgers

from ..harness import Result, Row
from .processes import Flat, Partner, Pipe

__all__ = ["measure_soak"]

_log = logging.getLogger(__name__)

_N_PARAMS: Final = 100_000
_STEP_S: Final = 0.25
_P: Final = 0.2
_DOWN_S: Final = (0.5, 5.0)
_FOUNDING_S: Final = 300.0
_LEAVING_S: Final = 60.0
# The weight of killed peers is lost for good: with one in 32 of a swarm killed each second, it
# would be too small to be halved after a quarter of an hour.
_KILLED: Final = 0.5
_RETURNS: Final = 0.5


@dataclass(slots=True)
class _Place:
    """A place for one peer, and its current process."""

    id: str
    process: Partner
    address: str = ""
    """Its listening address; empty until it is a member."""


class _Churn:
    """A swarm in a folder: founders that stay, and places in which other peers come and go.

    Every second peer exchanges over TCP only, the others through shared memory if possible.
    """

    def __init__(self, folder: Path, staying: int, coming: int) -> None:
        self.events: Counter[str] = Counter()
        """Number of peers ``killed``, ``left``, ``returned`` and ``joined``."""
        self._folder = folder
        self._rng = np.random.default_rng(0)
        # Loading torch for each newcomer would be most of the work; it is loaded once.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._lost: list[Life] = []
        self._count = 0
        founding = {"rendezvous": folder / "meeting", "founders": staying}
        self._staying = [self._start(self._new_id(), **founding) for _ in range(staying)]
        for place in self._staying:
            self._admit(place, _FOUNDING_S)
        self._coming: list[_Place] = [self._come(self._new_id()) for _ in range(coming)]
        self._absent: list[tuple[float, str, str]] = []
        """Peers to start next: when, with which name and address."""

    @property
    def pids(self) -> list[int]:
        """Processes of the peers that stay."""
        return [place.process.pid for place in self._staying]

    def turn(self) -> None:
        """Remove a peer, and start the peers that are due."""
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
                place.process.say("stop")
                place.process.end(_LEAVING_S)
            else:
                self._kill(place)
        folders = sorted(path.parent for path in self._folder.glob("*/ledger.jsonl"))
        return audit([a for folder in folders for a in read_ledgers(folder)], self._lost)

    def kill(self) -> None:
        """Kill all processes."""
        for place in (*self._staying, *self._coming):
            place.process.kill()

    def _dismiss(self, place: _Place) -> None:
        """Kill a peer, or let it leave; another takes its place later."""
        self._coming.remove(place)
        id, address = place.id, place.address
        if self._rng.random() < _KILLED:
            # A killed peer comes back: otherwise its name would be dialled forever.
            self._kill(place)
            self.events["killed"] += 1
        else:
            place.process.say("leave")
            place.process.end(_LEAVING_S)
            self.events["left"] += 1
            if self._rng.random() >= _RETURNS:
                id, address = self._new_id(), ""
        self.events["returned" if address else "joined"] += 1
        back_s = time.monotonic() + float(self._rng.uniform(*_DOWN_S))
        self._absent.append((back_s, id, address))

    def _kill(self, place: _Place) -> None:
        place.process.kill()
        self._lost += [account.life for account in read_ledgers(self._folder / place.id)[-1:]]

    def _admit(self, place: _Place, timeout_s: float) -> None:
        """Record that a peer is a member, if it is."""
        if not place.address and place.process.speaks(timeout_s):
            place.address = place.process.hear()

    def _come(self, id: str, address: str = "") -> _Place:
        known = [place.address for place in self._staying]
        chosen = self._rng.choice(known, size=min(3, len(known)), replace=False)
        given: dict[str, Any] = {"bind": address} if address else {}
        return self._start(id, join=tuple(map(str, chosen)), **given)

    def _start(self, id: str, **given: Any) -> _Place:
        arguments = (id, self._folder / id, int(id.split("-")[1]) % 2 == 0, given)
        return _Place(id, Partner(_serve, *arguments, context=self._context))

    def _new_id(self) -> str:
        self._count += 1
        return f"peer-{self._count}"


def _serve(pipe: Pipe, id: str, out: Path, shared_memory: bool, given: dict[str, Any]) -> None:
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


class _Vitals(NamedTuple):
    """One measurement of a process."""

    pss: float
    """Resident memory with its share only of shared memory, MB."""
    rss: float
    """Resident memory, including shared memory, MB."""
    threads: float
    files: float
    """Open file descriptors."""


def _vitals(pid: int) -> _Vitals:
    process = Path(f"/proc/{pid}")
    words = (line.split() for line in (process / "smaps_rollup").read_text().splitlines())
    megabytes = {line[0]: int(line[1]) * 1024 / 1e6 for line in words if line[-1] == "kB"}
    (threads,) = re.findall(r"^Threads:\s+(\d+)", (process / "status").read_text(), re.M)
    files = len(os.listdir(process / "fd"))
    return _Vitals(megabytes["Pss:"], megabytes["Rss:"], int(threads), files)


def measure_soak(
    minutes: float = 10.0,
    peers: int = 32,
    every_s: float = 2.0,
    look_s: float = 5.0,
) -> Result:
    """Compare the last quarter of the time of a swarm with the second one; needs Linux.

    One of *peers* is removed each *every_s*; a quarter of them stay, and are measured.
    """
    # The first quarter is skipped: until then, memory is allocated for the first time.
    # Every death would be logged, and drown the few lines of this benchmark.
    logging.getLogger("rumor").setLevel(logging.ERROR)
    staying = max(2, peers // 4)
    _log.info("soak: %d peers for %g minutes", peers, minutes)
    with TemporaryDirectory() as folder:
        churn = _Churn(Path(folder), staying, peers - staying)
        try:
            looks = _soak(churn, 60 * minutes, every_s, look_s)
            whole = churn.end()
        finally:
            churn.kill()
    return Result(
        name="soak",
        title=f"{staying} peers that stayed for {minutes:g} minutes while others of {peers} came "
        "and went: the last quarter next to the second",
        rows=(*_rows(looks, churn.events), _weight(whole)),
    )


def _soak(churn: _Churn, seconds: float, every_s: float, look_s: float) -> Sequence[_Vitals]:
    """Return measurements in order of time, means over the peers that stayed."""
    start_s = time.monotonic()
    looks: list[_Vitals] = []
    turn_s = look_due_s = start_s
    while (now := time.monotonic()) < start_s + seconds:
        if now >= look_due_s:
            look_due_s += look_s
            looks.append(_Vitals(*map(mean, zip(*map(_vitals, churn.pids), strict=True))))
        churn.turn()
        turn_s += every_s
        time.sleep(max(0.0, turn_s - time.monotonic()))
    return looks


def _rows(looks: Sequence[_Vitals], events: Mapping[str, int]) -> Iterator[Row]:
    n = len(looks)
    early, late = slice(n // 4, max(n // 4 + 1, n // 2)), slice(min(n - 1, 3 * n // 4), n)
    happened = ", ".join(f"{count} {what}" for what, count in sorted(events.items()))
    for what in _Vitals._fields:
        last, second = (mean(getattr(look, what) for look in looks[part]) for part in (late, early))
        unit = "MB" if what in ("pss", "rss") else ""
        yield Row(name=what, ours=last, reference=second, unit=unit, note=happened)


def _weight(whole: Audit) -> Row:
    accounted = whole.held + whole.in_flight + whole.stranded + whole.burned + whole.died
    return Row(
        name="weight in all ledgers",
        ours=accounted / ONE,
        reference=whole.founded / ONE,
        unit="founders",
        note=f"difference in units: {in_units(accounted - whole.founded)}; "
        f"held {whole.held / ONE:.6g}, in flight {whole.in_flight / ONE:.6g}, "
        f"stranded {whole.stranded / ONE:.6g}, burned {whole.burned / ONE:.6g}, "
        f"gone with the dead {whole.died / ONE:.6g}",
    )
