"""What the workers of a fleet make of its faults: who notices what, and how long it takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

__all__ = ["Arrival", "Crash", "FaultReport", "Healing", "Times"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What became of the time of all workers of a fleet together, seconds."""

    until_s: float
    """Up to which virtual time it is counted."""
    lived_s: float
    """How long their processes have run."""
    unused_s: float
    """How much of it they waited for others, looked for a swarm, or stood still."""
    computed_s: float
    """What the steps lasted that count, that which goes on included: without those that somebody
    took again after a crash."""
    waited_s_most: float
    """The longest time at a stretch that one of them waited for others."""


@dataclass(slots=True)
class Crash:
    """A worker that crashed, and when others held it for dead."""

    worker: int
    at_s: float
    survivors: set[int]
    """Those who ran then and do still."""
    seen_s: dict[int, float] = field(default_factory=dict)
    """By survivor."""
    over: bool = False
    """Whether a later life of it has begun since."""

    @property
    def first_s(self) -> float | None:
        """How long it took the first survivor, seconds; None while none has seen it."""
        return min(self.seen_s.values()) - self.at_s if self.seen_s else None

    @property
    def last_s(self) -> float | None:
        """How long it took the last survivor; None while one has not seen it."""
        if not self.seen_s or not self.survivors <= self.seen_s.keys():
            return None
        return max(self.seen_s.values()) - self.at_s


@dataclass(slots=True)
class Arrival:
    """A worker that came, for the first time or again."""

    worker: int
    at_s: float
    again: bool
    admitted_s: float | None = None
    """How long it took until it belonged to a swarm, seconds."""


@dataclass(slots=True)
class Healing:
    """A cut or a partition that ended."""

    at_s: float
    took_s: float | None = None
    """How long until no running worker was considered dead, seconds."""


class FaultReport:
    """What a swarm makes of its faults, told of all that concerns them as it happens."""

    def __init__(self) -> None:
        self.crashes: list[Crash] = []
        self.arrivals: list[Arrival] = []
        self.healings: list[Healing] = []
        self.stranded: tuple[int, ...] = ()
        """Workers that looked for a swarm, or stood still, when the others had ended."""
        self.membership_bytes_s = 0.0
        """Of messages about who lives, for each worker and second that it ran."""
        self._missed: dict[int, Crash] = {}
        self._new: dict[int, Arrival] = {}
        self._wrong: dict[int, set[int]] = {}
        """By worker that runs, those who hold it for dead and run themselves."""

    def crashed(self, worker: int, now: float, survivors: Iterable[int]) -> None:
        """Note that a worker is gone without a word."""
        self.gone(worker)
        crash = self._missed[worker] = Crash(worker, now, set(survivors))
        self.crashes.append(crash)

    def gone(self, worker: int) -> None:
        """Note that a process has ended: what it saw does not count any more."""
        self._new.pop(worker, None)
        for crash in self._missed.values():
            crash.survivors.discard(worker)
            crash.seen_s.pop(worker, None)
        self._wrong.pop(worker, None)
        for observers in self._wrong.values():
            observers.discard(worker)

    def came(self, worker: int, now: float, *, again: bool) -> None:
        """Note that a worker has started: a newcomer, or the next life of one."""
        missed = self._missed.pop(worker, None)
        if missed is not None:
            missed.over = True
        arrival = self._new[worker] = Arrival(worker, now, again)
        self.arrivals.append(arrival)

    def admitted(self, worker: int, now: float) -> None:
        """Note that a worker belongs to a swarm."""
        arrival = self._new.get(worker)
        if arrival is not None and arrival.admitted_s is None:
            arrival.admitted_s = now - arrival.at_s

    def died(self, observer: int, worker: int, now: float) -> None:
        """Note that somebody holds a worker for dead."""
        crash = self._missed.get(worker)
        if crash is None:
            self._wrong.setdefault(worker, set()).add(observer)
        elif observer in crash.survivors:
            crash.seen_s.setdefault(observer, now)

    def heard(self, observer: int, worker: int, now: float) -> None:
        """Note that somebody holds a worker for alive again."""
        observers = self._wrong.get(worker)
        if observers is not None and observer in observers:
            observers.discard(observer)
            if not observers:
                del self._wrong[worker]
            self._look(now)

    def ended(self, now: float) -> None:
        """Note that a cut has ended."""
        self.healings.append(Healing(now))
        self._look(now)

    def _look(self, now: float) -> None:
        if any(self._wrong.values()):
            return
        for healing in self.healings:
            if healing.took_s is None:
                healing.took_s = now - healing.at_s

    def figures(self) -> dict[str, Any]:
        """In numbers, for a summary: counts, and seconds."""
        lasting = [crash for crash in self.crashes if not crash.over]
        newcomers = [arrival for arrival in self.arrivals if not arrival.again]
        returned = [arrival for arrival in self.arrivals if arrival.again]
        return {
            "crashes": len(self.crashes),
            "restarts": len(returned),
            "joins": len(newcomers),
            "detect_s_first": _median([crash.first_s for crash in self.crashes]),
            "detect_s_last": _most([crash.last_s for crash in self.crashes]),
            "undetected": sum(crash.last_s is None for crash in lasting),
            **_of_arrivals("join", newcomers),
            **_of_arrivals("restart", returned),
            "heal_s": _most([healing.took_s for healing in self.healings]),
            "unhealed": sum(healing.took_s is None for healing in self.healings),
            "membership_bytes_s": self.membership_bytes_s,
        }


def _of_arrivals(word: str, arrivals: Sequence[Arrival]) -> dict[str, Any]:
    return {
        f"{word}_s_median": _median([arrival.admitted_s for arrival in arrivals]),
        f"{word}_s_most": _most([arrival.admitted_s for arrival in arrivals]),
        f"{word}s_failed": sum(arrival.admitted_s is None for arrival in arrivals),
    }


def _median(times_s: Sequence[float | None]) -> float | None:
    """Of those that came."""
    found = [time_s for time_s in times_s if time_s is not None]
    return median(found) if found else None


def _most(times_s: Sequence[float | None]) -> float | None:
    """Of those that came."""
    return max((time_s for time_s in times_s if time_s is not None), default=None)
