"""Timed faults of real processes; peers apply faults of the network themselves."""

import heapq
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, Final

from ...gossip.errors import ConfigError
from ...train.faults.schedule import (
    LIVE_KINDS,
    NETWORK_KINDS,
    Fault,
    Slowness,
    faults_as_json,
    joining,
    names_of_newcomers,
    read_faults,
    resolve,
)
from ...train.faults.transport import NetworkPlan
from .folder import RunFolder
from .monitor import Monitor, State
from .processes import ProcessGroup

__all__ = ["FaultInjector", "read_live_faults"]

# How long a slowed peer runs at a time. The shorter, the smoother its slowness looks to neighbors;
# a process wakes up only to within about a millisecond.
_RUN_S: Final = 0.01

# Reasons why peers are held; reasons of pauses have a number, because each ends by itself.
_PAUSE: Final = "pause"
_SLOW: Final = "slow"


_Due = tuple[float, int, Callable[[], None], Collection[str]]
"""A scheduled action: its time, its number, what it does, and peers that it restarts."""


class FaultInjector:
    """Applies a schedule of faults, whose times count from when all peers train.

    The peers apply faults of the network themselves (`FaultyTransport`), from a file with the
    faults and their start; here they are only recorded.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        group: ProcessGroup,
        monitor: Monitor,
        run_folder: RunFolder,
        *,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._monitor = monitor
        self._run_folder = run_folder
        ids = [place.id for place in group.places]
        # A resumed run has some newcomers already; the next gets the first free number.
        last = joining(faults) + sum(id.startswith("join-") for id in ids)
        self._network = NetworkPlan(
            ids=tuple(dict.fromkeys([*ids, *names_of_newcomers(last)])),
            seed=seed,
            faults=tuple(fault for fault in faults if fault.kind in NETWORK_KINDS),
        )
        self._tell_network()
        self._clock = clock
        self._began_s: float | None = None
        self._schedule: list[_Due] = []
        self._numbers = count()
        self._slowness = Slowness()
        self._turns: dict[int, int] = {}
        """Current turns of each slowed peer; a change of its slowness ends earlier turns."""
        self._news: list[str] = []
        self.records: list[dict[str, Any]] = []
        """Each fault as in its file, with ``done``: what, when, and at which step of its peer."""
        for fault in faults:
            record: dict[str, Any] = faults_as_json([fault])[0] | {"done": []}
            self.records.append(record)
            revives = [str(fault.peer)] if fault.kind == "restart" else []
            self._at(fault.at_s, partial(self._begin, fault, record), revives)

    @property
    def next_s(self) -> float:
        """Time until the next action, seconds."""
        if self._began_s is None or not self._schedule:
            return inf
        return max(0.0, self._schedule[0][0] - self._elapsed_s)

    @property
    def will_revive(self) -> bool:
        """True if a peer that is down will be restarted."""
        return any(self._is_down(self._index(id)) for *_, ids in self._schedule for id in ids)

    def update(self) -> list[str]:
        """Apply all due faults, and return sentences about what was done."""
        if self._began_s is None and self._monitor.began:
            self._began_s = self._clock()
            self._network = replace(self._network, began_unix_s=time.time())
            self._tell_network()
        # Actions that are due again by the time they are done wait for the next call: they may take
        # longer than the time between two calls.
        due = []
        while self.next_s == 0.0:
            due.append(heapq.heappop(self._schedule))
        for _, _, act, _ in due:
            act()
        news, self._news = self._news, []
        return news

    def _tell_network(self) -> None:
        if self._run_folder.network_faults is not None:
            self._network.write(self._run_folder.network_faults)

    @property
    def _elapsed_s(self) -> float:
        return 0.0 if self._began_s is None else self._clock() - self._began_s

    def _at(self, when_s: float, act: Callable[[], None], revives: Collection[str] = ()) -> None:
        heapq.heappush(self._schedule, (when_s, next(self._numbers), act, revives))

    def _after(self, fault: Fault, act: Callable[[], None]) -> None:
        """Do something when a fault is over, if it ever is."""
        if fault.for_s is not None:
            self._at(self._elapsed_s + fault.for_s, act)

    def _index(self, peer: str | int | None) -> int:
        names = [view.id for view in self._monitor.views]
        return names.index(str(peer)) if peer in names else -1

    def _is_down(self, index: int) -> bool:
        """True if a peer has ended and could restart; a finished peer need not."""
        is_over = index >= 0 and not self._group.runs(index)
        return is_over and self._monitor.views[index].state is not State.FINISHED

    def _say(self, record: dict[str, Any], what: str, index: int | None = None) -> None:
        views = self._monitor.views if index is None else [self._monitor.views[index]]
        step = statistics.median_low(view.step for view in views)
        at_s, unix_s = round(self._elapsed_s, 3), round(time.time(), 3)
        record["done"].append({"at_s": at_s, "unix_s": unix_s, "step": step, "what": what})
        self._news.append(f"fault at {at_s:.1f} s: {what}")

    def _begin(self, fault: Fault, record: dict[str, Any]) -> None:
        index = self._index(fault.peer)
        runs = index >= 0 and self._group.runs(index)
        match fault.kind:
            case "join":
                self._join(fault.count or 1, record)
            case "mass-restart":
                self._restart_all(fault, record)
            case "restart" if self._is_down(index):
                self._restart(index, record, kept=fault.state != "lost")
            case "crash" if runs:
                self._group.kill(index)
                self._say(record, f"{fault.peer} is killed", index)
            case "leave" if runs:
                self._group.leave(index)
                self._say(record, f"{fault.peer} is asked to leave", index)
            case "pause" if runs:
                pause = f"{_PAUSE} {next(self._numbers)}"
                self._group.hold(index, pause)
                self._say(record, f"{fault.peer} is paused", index)
                self._after(fault, lambda: self._continue(index, record, {pause}))
            case "continue" if runs:
                self._continue(index, record, self._pauses(index))
            case "slow" if runs:
                assert fault.factor is not None
                cause = self._slowness.begin(index, fault.factor)
                self._begin_turns(index, record)
                self._after(fault, lambda: self._quicken(index, record, cause))
            case "restart" | "crash" | "leave" | "pause" | "continue" | "slow":
                state = self._monitor.views[index].state if index >= 0 else "not there yet"
                self._say(record, f"{fault.kind}: nothing is done, {fault.peer} is {state}")
            case _:
                told = [n for n in record if n not in ("at_s", "kind", "done")]
                about = ", ".join(f"{name} {record[name]}" for name in told)
                self._say(record, f"{fault.kind} begins" + (f": {about}" if about else ""))
                if fault.kind != "reset" or fault.every_s is not None:
                    self._after(fault, lambda: self._say(record, f"{fault.kind} ends"))

    def _pauses(self, index: int) -> set[str]:
        return {why for why in self._group.holds(index) if why.startswith(_PAUSE)}

    def _continue(self, index: int, record: dict[str, Any], pauses: Collection[str]) -> None:
        over = self._pauses(index).intersection(pauses)
        for pause in over:
            self._group.release(index, pause)
        how = "continues" if over else "is not paused, so nothing changes"
        if self._pauses(index):
            how = "is still paused by another fault"
        self._say(record, f"{self._monitor.views[index].id} {how}", index)

    # A slowed peer is stopped and continued in turns, so that it runs a FACTOR-th of the time.
    # Unlike sleep within its steps, that slows its network thread, too, as other work would.

    def _begin_turns(self, index: int, record: dict[str, Any]) -> None:
        self._turns[index] = turn = next(self._numbers)
        self._group.release(index, _SLOW)
        factor = self._slowness.of(index)
        if factor > 1:
            self._hold(index, turn, self._elapsed_s - _RUN_S)
        part = "all" if factor == 1 else f"1/{factor:g}"
        self._say(record, f"{self._monitor.views[index].id} runs {part} of the time", index)

    def _hold(self, index: int, turn: int, since_s: float) -> None:
        """End a slowed peer's turn, which began at *since_s*."""
        if self._turns[index] != turn:
            return
        now_s = self._elapsed_s
        self._group.hold(index, _SLOW)
        # From the time that it really ran, not from the intended time: otherwise a busy launcher
        # would speed it up.
        rest_s = (now_s - since_s) * (self._slowness.of(index) - 1)
        self._at(now_s + rest_s, lambda: self._let_run(index, turn))

    def _let_run(self, index: int, turn: int) -> None:
        if self._turns[index] == turn:
            self._group.release(index, _SLOW)
            now_s = self._elapsed_s
            self._at(now_s + _RUN_S, lambda: self._hold(index, turn, now_s))

    def _quicken(self, index: int, record: dict[str, Any], cause: object) -> None:
        self._slowness.end(index, cause)
        self._begin_turns(index, record)

    def _restart_all(self, fault: Fault, record: dict[str, Any]) -> None:
        peers = fault.peers or tuple(view.id for view in self._monitor.views)
        running = [i for i in map(self._index, peers) if i >= 0 and self._group.runs(i)]
        for index in running:
            self._group.kill(index)
        names = [self._monitor.views[index].id for index in running]
        self._say(record, f"{', '.join(names) or 'no peer'}: killed at once")

        def revive() -> None:
            for index in running:
                if not self._group.runs(index):
                    self._restart(index, record, kept=fault.state != "lost")

        assert fault.for_s is not None
        self._at(self._elapsed_s + fault.for_s, revive, names)

    def _restart(self, index: int, record: dict[str, Any], *, kept: bool) -> None:
        self._monitor.ended(index)
        self._group.restart(index, self._run_folder.next_life(self._group.places[index], kept=kept))
        self._monitor.reborn(index)
        how = "from its last checkpoint" if kept else "without state"
        self._say(record, f"{self._monitor.views[index].id} restarts {how}", index)

    def _join(self, many: int, record: dict[str, Any]) -> None:
        for _ in range(many):
            known = {view.id for view in self._monitor.views}
            free = next(number for number in count(1) if f"join-{number}" not in known)
            place = self._run_folder.newcomer(free)
            self._group.add(place)
            self._monitor.joined()
            self._say(record, f"{place.id} starts")


def read_live_faults(
    path: Path, peers: Sequence[str], *, journal: bool = False
) -> tuple[Fault, ...]:
    """Read the faults of a run of real processes, in order of time, with peers by name."""
    try:
        faults = resolve(read_faults(path), peers, LIVE_KINDS)
        for position, fault in enumerate(faults, 1):
            _check(replace(fault, row=fault.row or position), journal=journal)
    except ConfigError as error:
        raise ConfigError(f"--faults {path}: {error}") from None
    return faults


def _check(fault: Fault, *, journal: bool) -> None:
    where = f"fault {fault.row} ({fault.kind})"
    for name in ("after", "accepting"):
        if getattr(fault, name):
            raise ConfigError(
                f"{where}: {name} is for simulations alone: a real process is killed where it is"
            )
    if fault.factor is not None and fault.factor < 1:
        raise ConfigError(
            f"{where}: factor is {fault.factor}: it must be at least 1, as no fault makes a real "
            "process faster"
        )
    if journal and "restart" in fault.kind and fault.state != "lost":
        raise ConfigError(
            f'{where}: with --set journal, state must be "lost": a journal begins with its peer'
        )
