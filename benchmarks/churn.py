"""Peers on this machine of which some come and go all the time: killed, restarted, left, joined."""

import logging
import multiprocessing
import os
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from ..gossip import Audit, GoSGD, ProtocolConfig, audit
from ..gossip.ledger import Life
from ..gossip.timing import timing
from ..train import Peer, PeerConfig
from ..train.ledger_file import read_ledgers
from .partner import Flat, Pipe

__all__ = ["Churn"]

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


class Churn:
    """A swarm in a folder: founders that stay, and places in which others come and go.

    All take their steps in their sleep; shares are a little too large for one message. Every
    second peer exchanges over TCP only, the others through shared memory where they can.

    Args:
        folder: For their ledgers.
        staying: How many found it, and stay.
        coming: How many places there are beside.
        seed: Of who comes and goes.
    """

    def __init__(self, folder: Path, staying: int, coming: int, seed: int = 0) -> None:
        self.events: Counter[str] = Counter()
        """What has happened, by ``killed``, ``left``, ``returned`` and ``joined``."""
        self._folder = folder
        self._rng = np.random.default_rng(seed)
        # Loading torch for each that comes would be most of the work; it is loaded once.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["rumor.benchmarks.churn"])
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
