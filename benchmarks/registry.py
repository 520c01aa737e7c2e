"""Every benchmark, by the name that people type."""

from collections.abc import Callable

from .control import measure_control
from .exchange import measure_exchange
from .joining import measure_joining
from .memory import measure_memory
from .protocol import measure_protocol
from .result import Result
from .sim import measure_sim
from .stall import measure_stall
from .straggler import measure_straggler
from .topology import measure_topology

__all__ = ["BENCHMARKS"]

BENCHMARKS: dict[str, Callable[[], Result]] = {
    "protocol": measure_protocol,
    "exchange": measure_exchange,
    "stall": measure_stall,
    "straggler": measure_straggler,
    "memory": measure_memory,
    "control": measure_control,
    "joining": measure_joining,
    "topology": measure_topology,
    "sim": measure_sim,
}
"""In the order in which they run; most take a minute or two, ``exchange``, ``stall``, ``topology``
and ``joining`` some four, ``sim`` ten. ``joining`` takes up to 16 GB where there is so much, the
others less than 6. ``stall`` and ``sim`` install rivals the first time, ``control`` needs root."""
