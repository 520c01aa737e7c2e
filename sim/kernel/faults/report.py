"""How a fleet's workers notice its faults, and how long that takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

__all__ = ["Arrival", "Crash", "FaultReport", "Times"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How all workers of a fleet together have spent their time, seconds."""

    until_s: float  # virtual time up to which it is counted
    lived_s: float  # time that their processes have run
    unused_s: float  # part of it spent waiting for others, joining, or paused
    computed_s: float  # time of the steps that count, without those repeated after a crash
    waited_s_most: float  # longest single wait of a worker for others


@dataclass(slots=True)
class Crash:
    """A worker that crashed, and when others considered it dead."""

    at_s: float
    survivors: set[int]  # workers that ran then and still do
    seen_s: dict[int, float] = field(default_factory=dict)  # when each survivor considered it dead

    @property
    def first_s(self) -> float | None:
        """Seconds until the first survivor noticed; None while none has."""
        return min(self.seen_s.values()) - self.at_s if self.seen_s else None

    @property
    def last_s(self) -> float | None:
        """Seconds until the last survivor noticed; None while one has not."""
        if not self.seen_s or not self.survivors <= self.seen_s.keys():
            return None
        return max(self.seen_s.values()) - self.at_s


@dataclass(slots=True)
class Arrival:
    """A worker that started, for the first time or again."""

    at_s: float
    again: bool
    admitted_s: float | None = None  # seconds until it had joined a swarm


class FaultReport:
    """Records how a swarm handles its faults, from calls as they happen."""

    def __init__(self) -> None:
        self.crashes: list[Crash] = []
        self.arrivals: list[Arrival] = []
        self.stranded: tuple[int, ...] = ()
        """Workers that were searching for a swarm, or paused, when the others had ended."""
        self.membership_bytes_s = 0.0
        """Bytes of membership messages per worker and second of its run."""
        # Last crash of each worker of which no later incarnation has begun.
        self._missed: dict[int, Crash] = {}
        self._new: dict[int, Arrival] = {}
        # Ends of cuts after which a running worker is still considered dead.
        self._healing_since_s: list[float] = []
        # How long after the end of each other cut one still was.
        self._healed_s: list[float] = []
        # For each running worker, the running workers that consider it dead.
        self._wrong: dict[int, set[int]] = {}

    def crashed(self, worker: int, now: float, survivors: Iterable[int]) -> None:
        self.gone(worker)
        crash = self._missed[worker] = Crash(now, set(survivors))
        self.crashes.append(crash)

    def gone(self, worker: int) -> None:
        """Record that a process has ended: its observations no longer count."""
        self._new.pop(worker, None)
        for crash in self._missed.values():
            crash.survivors.discard(worker)
            crash.seen_s.pop(worker, None)
        self._wrong.pop(worker, None)
        for observers in self._wrong.values():
            observers.discard(worker)

    def came(self, worker: int, now: float, *, again: bool) -> None:
        self._missed.pop(worker, None)
        arrival = self._new[worker] = Arrival(now, again)
        self.arrivals.append(arrival)

    def admitted(self, worker: int, now: float) -> None:
        arrival = self._new.get(worker)
        if arrival is not None and arrival.admitted_s is None:
            arrival.admitted_s = now - arrival.at_s

    def died(self, observer: int, worker: int, now: float) -> None:
        crash = self._missed.get(worker)
        if crash is None:
            self._wrong.setdefault(worker, set()).add(observer)
        elif observer in crash.survivors:
            crash.seen_s.setdefault(observer, now)

    def heard(self, observer: int, worker: int, now: float) -> None:
        observers = self._wrong.get(worker)
        if observers is not None and observer in observers:
            observers.discard(observer)
            if not observers:
                del self._wrong[worker]
            self._look(now)

    def ended(self, now: float) -> None:
        """Record that a cut has ended."""
        self._healing_since_s.append(now)
        self._look(now)

    def _look(self, now: float) -> None:
        if not any(self._wrong.values()):
            self._healed_s += [now - since_s for since_s in self._healing_since_s]
            self._healing_since_s.clear()

    def figures(self) -> dict[str, Any]:
        newcomers = [arrival for arrival in self.arrivals if not arrival.again]
        returned = [arrival for arrival in self.arrivals if arrival.again]
        return {
            "crashes": len(self.crashes),
            "restarts": len(returned),
            "joins": len(newcomers),
            "detect_s_first": _median([crash.first_s for crash in self.crashes]),
            "detect_s_last": _most([crash.last_s for crash in self.crashes]),
            "undetected": sum(crash.last_s is None for crash in self._missed.values()),
            **_of_arrivals("join", newcomers),
            **_of_arrivals("restart", returned),
            "heal_s": _most(self._healed_s),
            "unhealed": len(self._healing_since_s),
            "membership_bytes_s": self.membership_bytes_s,
        }


def _of_arrivals(word: str, arrivals: Sequence[Arrival]) -> dict[str, Any]:
    return {
        f"{word}_s_median": _median([arrival.admitted_s for arrival in arrivals]),
        f"{word}_s_most": _most([arrival.admitted_s for arrival in arrivals]),
        f"{word}s_failed": sum(arrival.admitted_s is None for arrival in arrivals),
    }


def _median(times_s: Sequence[float | None]) -> float | None:
    found = [time_s for time_s in times_s if time_s is not None]
    return median(found) if found else None


def _most(times_s: Sequence[float | None]) -> float | None:
    return max((time_s for time_s in times_s if time_s is not None), default=None)
