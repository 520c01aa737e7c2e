"""Effects of faults on messages in flight: temporary cuts, resets, loss, duplicates and delays."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...gossip.types import PeerId
from ...topology.hashing import key, uniform
from .schedule import RANDOM_KINDS, Fault

__all__ = ["REPLAY_S_MAX", "NetworkFaults"]


REPLAY_S_MAX = 180.0
"""Maximum age of a replayed message."""

# A duplicate arrives after its original, by at most this multiple of the original's travel time.
_LATE = 4.0

# Delays have a heavy tail: one message in a hundred takes over 10 times the delay.
_TAIL = 0.5

_LOSS, _COPY, _COPY_LATENESS, _REPLAY, _REPLAY_LATENESS, _DELAY = (
    key(0, "weather", purpose)
    for purpose in ("loss", "copy", "copy's lateness", "replay", "replay's lateness", "delay")
)


class _Wall(NamedTuple):
    """Links that carry no messages for a while."""

    start_s: float
    stop_s: float
    parts: Callable[[int, int], bool]
    """Returns True if it separates a sender from a receiver."""
    group_of: Sequence[int] = ()
    """In a partition, the group of each worker, -1 for those that are not named."""


class _Resets(NamedTuple):
    """Moments at which messages in flight are lost."""

    start_s: float
    stop_s: float
    every_s: float
    worker: int | None
    """The worker whose links are reset; None for all."""

    def hits(self, sent_s: float, arrival_s: float) -> bool:
        """True if one of these moments is in (*sent_s*, *arrival_s*]."""
        last_s = min(arrival_s, self.stop_s)
        if last_s < self.start_s:
            return False
        times = math.floor((last_s - self.start_s) / self.every_s) if self.every_s else 0
        return self.start_s + times * self.every_s > sent_s

    def next_s(self, after_s: float) -> float:
        """Return the first of these moments after a time, or inf."""
        if after_s < self.start_s:
            return self.start_s
        if not self.every_s:
            return math.inf
        times = math.floor((after_s - self.start_s) / self.every_s) + 1
        next_s = self.start_s + times * self.every_s
        return next_s if next_s <= self.stop_s else math.inf


class _RandomFault(NamedTuple):
    """A fault that may hit messages for a while."""

    start_s: float
    stop_s: float
    kind: str
    amount: float
    """A probability; for delays, seconds."""
    worker: int | None
    """The worker whose messages it may hit; None for all."""


class NetworkFaults:
    """The network faults of a plan, as a function of time; all are over by *calm_s*."""

    def __init__(
        self, faults: Sequence[Fault], ids: Sequence[PeerId], seed: int, calm_s: float = math.inf
    ) -> None:
        self.resets_hit = 0
        """Number of messages lost in a reset."""
        self._calm_s = calm_s
        self._ids = ids
        self._seed = seed
        self._places = {id: index for index, id in enumerate(ids)}
        cuts = {"cut": self._cut, "partition": self._partition}
        self._walls = [cuts[f.kind](f, self._healed_s(f, faults)) for f in faults if f.kind in cuts]
        self._resets = [self._reset(f) for f in faults if f.kind == "reset"]
        self._random = [self._random_fault(f) for f in faults if f.kind in RANDOM_KINDS]
        timed: list[_Wall | _Resets | _RandomFault] = [*self._walls, *self._resets, *self._random]
        self._first_s = min([each.start_s for each in timed], default=math.inf)
        self._last_s = max([each.stop_s for each in timed], default=-math.inf)
        self._links: dict[int, tuple[int, int]] = {}

    def healed_s(self) -> list[float]:
        """Return the times at which cuts and partitions end, if they do, ascending."""
        return sorted({wall.stop_s for wall in self._walls if wall.stop_s < math.inf})

    def groups(self, now: float, workers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the groups of the partition that began last; empty without one.

        The workers that the plan does not name come last.
        """
        split = [w for w in self._walls if w.group_of and w.start_s <= now < w.stop_s]
        if not split:
            return ()
        group_of = max(split, key=lambda wall: wall.start_s).group_of
        numbers = [*range(max(group_of) + 1), *([-1] if -1 in group_of else [])]
        return tuple(tuple(w for w in workers if group_of[w] == number) for number in numbers)

    def arrivals(
        self, sent_s: float, source: int, to: int, times_s: tuple[float, ...]
    ) -> tuple[float, ...]:
        """Return when a message arrives that would arrive at *times_s*; empty if it is lost."""
        if not times_s or sent_s > self._last_s:
            return times_s
        if self._random:
            times_s = self._change(sent_s, source, to, times_s)
        if not times_s or max(times_s) < self._first_s:
            return times_s
        found = [at for at in times_s if not self._is_lost(sent_s, at, source, to)]
        return tuple(found) if len(found) < len(times_s) else times_s

    def _change(
        self, sent_s: float, source: int, to: int, times_s: tuple[float, ...]
    ) -> tuple[float, ...]:
        # Numbers depend on the link and the count of its messages alone, so that removing a fault
        # does not shift the others.
        place = source << 32 | to
        word, number = self._links.get(place) or (
            key(self._seed, "weather", self._ids[source], self._ids[to]),
            0,
        )
        self._links[place] = word, number + 1
        now = [
            fault
            for fault in self._random
            if fault.start_s <= sent_s < fault.stop_s
            and (fault.worker is None or fault.worker in (source, to))
        ]
        if not now:
            return times_s
        if uniform(word ^ _LOSS, number) < _any_of(now, "loss"):
            return ()
        delay_s = sum([fault.amount for fault in now if fault.kind == "delay"])
        if delay_s:
            drawn = (1 - uniform(word ^ _DELAY, number)) ** -_TAIL
            times_s = tuple([at + delay_s * drawn for at in times_s])
        first_s, copies = times_s[0], []
        if uniform(word ^ _COPY, number) < _any_of(now, "duplicate"):
            late = _LATE * uniform(word ^ _COPY_LATENESS, number)
            copies.append(first_s + late * (first_s - sent_s))
        if uniform(word ^ _REPLAY, number) < _any_of(now, "replay"):
            copies.append(first_s + REPLAY_S_MAX * uniform(word ^ _REPLAY_LATENESS, number))
        return (*times_s, *copies)

    def _is_lost(self, sent_s: float, arrival_s: float, source: int, to: int) -> bool:
        for start_s, stop_s, parts, _ in self._walls:
            if sent_s < stop_s and arrival_s >= start_s and parts(source, to):
                return True
        if self.was_reset(sent_s, arrival_s, source, to):
            self.resets_hit += 1
            return True
        return False

    def was_reset(self, since_s: float, until_s: float, source: int, to: int) -> bool:
        """True if connections between two workers were reset in (*since_s*, *until_s*]."""
        return any(
            (resets.worker is None or resets.worker in (source, to))
            and resets.hits(since_s, until_s)
            for resets in self._resets
        )

    def next_reset_s(self, after_s: float) -> float:
        """Return when connections are next reset after a time, or inf."""
        return min([resets.next_s(after_s) for resets in self._resets], default=math.inf)

    def _cut(self, fault: Fault, healed_s: float) -> _Wall:
        here = self._place(fault.peer)
        there = None if fault.to is None else self._place(fault.to)

        def is_forth(source: int, to: int) -> bool:
            return source == here and there in (None, to)

        def is_either(source: int, to: int) -> bool:
            return is_forth(source, to) or is_forth(to, source)

        return _Wall(fault.at_s, healed_s, is_forth if fault.one_way else is_either)

    def _partition(self, fault: Fault, healed_s: float) -> _Wall:
        # Workers that are not named, including newcomers, form another group.
        group_of = [-1] * len(self._ids)
        for number, group in enumerate(fault.groups or ()):
            for name in group:
                group_of[self._place(name)] = number
        return _Wall(
            fault.at_s, healed_s, lambda here, there: group_of[here] != group_of[there], group_of
        )

    def _reset(self, fault: Fault) -> _Resets:
        every_s = fault.every_s or 0.0
        stop_s = self._stop_s(fault) if every_s else fault.at_s
        return _Resets(fault.at_s, stop_s, every_s, self._one(fault))

    def _random_fault(self, fault: Fault) -> _RandomFault:
        amount = fault.by_s if fault.kind == "delay" else fault.rate
        stop_s = self._stop_s(fault)
        return _RandomFault(fault.at_s, stop_s, fault.kind, amount or 0.0, self._one(fault))

    def _stop_s(self, fault: Fault) -> float:
        return self._calm_s if fault.for_s is None else min(fault.at_s + fault.for_s, self._calm_s)

    def _healed_s(self, fault: Fault, faults: Sequence[Fault]) -> float:
        """Return when a cut or a partition ends: by itself, or with the next ``heal``."""
        heals = [f.at_s for f in faults if f.kind == "heal" and f.at_s >= fault.at_s]
        return min([self._stop_s(fault), *heals])

    def _one(self, fault: Fault) -> int | None:
        return None if fault.peer is None else self._place(fault.peer)

    def _place(self, peer: str | int | None) -> int:
        assert isinstance(peer, str)
        return self._places[peer]


def _any_of(chances: Sequence[_RandomFault], kind: str) -> float:
    """Return the probability that at least one fault of a kind strikes."""
    return 1 - math.prod([1 - fault.amount for fault in chances if fault.kind == kind])
