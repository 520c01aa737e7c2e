"""What a process takes from its machine, by the Linux kernel's own files."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Vitals", "vitals"]


@dataclass(frozen=True, slots=True)
class Vitals:
    """One look at a process."""

    rss_bytes: int
    """Resident memory, with what it shares with others."""
    pss_bytes: int
    """The same, with its part only of what is shared."""
    threads: int
    files: int
    """Open file descriptors."""


def vitals(pid: int) -> Vitals:
    """Look at a process.

    Args:
        pid: Its number at the system.

    Raises:
        OSError: There is none, or it is not ours to look at.
    """
    process = Path(f"/proc/{pid}")
    memory = _kilobytes(process / "smaps_rollup")
    status = dict(
        line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line
    )
    return Vitals(
        rss_bytes=memory["Rss"] * 1024,
        pss_bytes=memory["Pss"] * 1024,
        threads=int(status["Threads"]),
        files=len(os.listdir(process / "fd")),
    )


def _kilobytes(path: Path) -> dict[str, int]:
    """Lines such as ``Pss:  1234 kB``."""
    words = (line.split() for line in path.read_text().splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in words if line[-1] == "kB"}
