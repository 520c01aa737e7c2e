"""What a figure depends on beside the code: processor and versions."""

import os
import platform
from pathlib import Path

import torch
import zmq

__all__ = ["machine"]


def machine() -> str:
    """One line: CPU model, cores, Python, torch, pyzmq and libzmq."""
    return (
        f"{_cpu()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, pyzmq {zmq.__version__} (libzmq {zmq.zmq_version()})"
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
