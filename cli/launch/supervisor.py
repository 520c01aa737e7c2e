"""A run from the start of its processes to the end of the last one."""

import signal
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .config import Place
from .display import Display
from .monitor import Life, Monitor, PeerView, Process
from .processes import ProcessGroup

if TYPE_CHECKING:
    from .faults import FaultInjector

__all__ = ["Fleet", "supervise"]

LOOK_S = 0.2

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Fleet(Protocol):
    """Processes on other machines, see `cluster.fleet.Fleet`."""

    places: list[Place]
    unreached: list[str]

    @property
    def processes(self) -> Sequence[Process]: ...
    def start(self) -> None: ...
    def leave_all(self, number: int = signal.SIGTERM) -> None: ...
    def tell_dead(self, lives: Sequence[Life]) -> None: ...
    def kill_all(self) -> None: ...
    def wait(self) -> None: ...
    def look(self) -> list[str]: ...
    def close(self) -> None: ...


class _Interrupt:
    """Handles Ctrl-C: the first one makes peers leave, the second kills them."""

    def __init__(self, group: ProcessGroup | Fleet) -> None:
        self._group = group
        self.count = 0
        self.number: int = signal.SIGTERM
        """Signal for the peers: a script gets Ctrl-C as Ctrl-C, too."""

    def __call__(self, number: int, frame: object) -> None:
        self.count += 1
        if self.count > 1:
            self._group.kill_all()
            return
        print(
            "\nstopping: peers hand their weight on and leave; once more kills them",
            file=sys.stderr,
        )
        if number == signal.SIGINT:
            self.number = number
        self._group.leave_all(self.number)


def supervise(
    group: ProcessGroup | Fleet,
    monitor: Monitor,
    display: Display,
    faults: "FaultInjector | None" = None,
) -> list[PeerView]:
    """Start all processes, and watch them until the last one has ended.

    Raises:
        OSError: A process could not be started; those that were are killed.
    """
    interrupt = _Interrupt(group)
    started_s = time.monotonic()
    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        display(monitor.views, (), 0.0)
        group.start()
        if interrupt.count:
            # Processes started since then have not received it.
            group.leave_all(interrupt.number)
        while not monitor.over or (faults is not None and faults.will_revive):
            if interrupt.count and isinstance(group, ProcessGroup):
                # Nothing more is done to peers, and a paused one must hear the signal.
                group.release_all()
                faults = None
            news = _wait(faults) + monitor.update()
            # Without this, the others would notice a death after half a minute of silence; for a
            # peer that will be restarted they must wait.
            if faults is None or not faults.will_revive:
                group.tell_dead(monitor.take_deaths())
            display(monitor.views, news, time.monotonic() - started_s)
    except BaseException:
        group.kill_all()
        group.wait()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return monitor.views


def _wait(faults: "FaultInjector | None") -> list[str]:
    """Apply faults that are due until it is time for the next check; return what was done."""
    news: list[str] = []
    look_s = time.monotonic() + LOOK_S
    while (rest_s := look_s - time.monotonic()) > 0:
        if faults is not None:
            news += faults.update()
            rest_s = min(rest_s, faults.next_s)
        time.sleep(rest_s)
    return news
