"""A peer's machine: the properties that a computation's bits depend on, and the clock."""

import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

__all__ = ["differences", "machine", "processor", "uptime_s"]

# The clock that runs while the machine sleeps, by its name on Linux, then on macOS. Python's own
# monotonic clock stops during sleep on both.
_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

_WORDS = {
    "cpu": "processor",
    "capability": "instruction set",
    "threads": "threads of torch",
    "matmul_precision": "precision of matrix products",
    "deterministic": "deterministic algorithms",
    "gpu": "GPU",
}


def machine(device: torch.device) -> dict[str, Any]:
    """Return versions, threads and processors as JSON values, for training on *device*."""
    return {
        "rumor": version("rumor"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the differences between two machines as phrases; none if their bits should agree.

    >>> differences({"torch": "2.1", "threads": 1}, {"torch": "2.2", "threads": 1})
    ['torch is 2.2, and was 2.1']
    """
    return [
        f"{_WORDS.get(name, name)} is {value}, and was {then.get(name)}"
        for name, value in now.items()
        if value != then.get(name)
    ]


def processor() -> str:
    """Return the model name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def uptime_s() -> float:
    """Return the seconds since some time before this process began, including machine sleep."""
    # A peer's uptime bounds which incarnations of others are plausible: a laptop that slept for a
    # night must not mistake newcomers for impostors.
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
