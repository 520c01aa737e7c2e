"""The clock that a live peer's protocol goes by."""

import time
from typing import Final

__all__ = ["uptime_s"]

# Linux's, and then macOS's name of the clock that goes on while the machine sleeps. Python's own
# monotonic clock stands still then, on both.
_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def uptime_s() -> float:
    """Seconds since some moment before this process began, sleep of the machine included.

    It never goes back. How long this peer has been up bounds which incarnations of others are
    plausible: a laptop that slept for a night must not take those who came since for impostors.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
