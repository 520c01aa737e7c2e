"""Every benchmark, by the name that people type."""

from collections.abc import Callable

from .exchange import measure_exchange
from .joining import measure_joining, measure_joining_simulated
from .membership import measure_control, measure_membership, measure_memory
from .protocol import measure_protocol
from .results import Result
from .simulator import measure_sim
from .soak import measure_soak
from .stall import measure_stall, measure_straggler
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
    "joining-simulated": measure_joining_simulated,
    "membership": measure_membership,
    "topology": measure_topology,
    "sim": measure_sim,
    "soak": measure_soak,
}
"""In the order in which they run; most take a minute or two, ``exchange``, ``stall``, ``topology``
and ``joining`` some four, ``membership`` eight, ``sim`` and ``soak`` ten. ``joining`` takes up to
16 GB where there is so much, the others less than 6. ``stall`` and ``sim`` install rivals the first
time, ``control`` needs root."""
