"""What a simulation takes of memory, before it takes it."""

import os
import resource

from ..gossip.errors import ConfigError
from .config import SimulationConfig

__all__ = ["check_memory", "free_gib", "peak_rss_mib"]

_GIB = 1 << 30

# A protocol with its streams, its neighbors' names and accounts, as measured at 10,000 workers.
_PROTOCOL_BYTES = 12_000

# Parts of the values: vectors, an optimizer's state as large, shares under way (up to two for
# each worker, and those that a window computes ahead), rows of a level and their gradients.
_ROWS_PER_WORKER = 5.0


def check_memory(config: SimulationConfig, *, row_bytes: int, registers: int) -> float:
    """Refuse what cannot fit.

    Args:
        config: How many workers, and what they may take.
        row_bytes: Of one worker's vector.
        registers: Vectors that the rule, and what was last sent, take beside each.

    Returns:
        The estimate, GiB.

    Raises:
        ConfigError: It is more than may be taken.
    """
    workers, memory_gib = config.workers, config.memory_gib
    rows = _ROWS_PER_WORKER + registers
    wanted_gib = workers * (rows * row_bytes + _PROTOCOL_BYTES) / _GIB
    allowed_gib = free_gib() if memory_gib is None else memory_gib
    if wanted_gib > allowed_gib:
        fit = int(workers * allowed_gib / wanted_gib)
        where = "this machine has free" if memory_gib is None else "memory_gib allows"
        raise ConfigError(
            f"{workers:,} workers of {row_bytes / 1e6:.3g} MB each would take about "
            f"{wanted_gib:.1f} GiB, more than the {allowed_gib:.1f} GiB that {where}: "
            f"about {fit:,} workers fit"
        )
    return wanted_gib


def peak_rss_mib() -> float:
    """The most memory that this process has ever held, MiB."""
    try:
        with open("/proc/self/status") as lines:
            (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(peak) / 1024
    except OSError:
        # In bytes on macOS; on Linux it would count the process that started this one.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def free_gib() -> float:
    """Memory that may be taken without swapping, GiB; all there is where that is not told."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) / 1024**2
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
