"""Every benchmark, by the name that people type."""

from collections.abc import Callable

from .exchange import measure_exchange
from .protocol import measure_protocol
from .result import Result
from .sim import measure_sim
from .stall import measure_stall
from .topology import measure_topology

__all__ = ["BENCHMARKS"]

BENCHMARKS: dict[str, Callable[[], Result]] = {
    "protocol": measure_protocol,
    "exchange": measure_exchange,
    "stall": measure_stall,
    "topology": measure_topology,
    "sim": measure_sim,
}
"""In the order in which they run; each takes a minute or so, ``topology`` four, ``sim`` ten, and
under 3 GB. ``sim`` installs a rival the first time."""
