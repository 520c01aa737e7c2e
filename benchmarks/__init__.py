"""Speed, measured as ratios within one run."""

import collections.abc

from . import (
    memory,
    protocol,
    simulator,
    topology,
)
from .exchange import exchange, stall
from .network import control, heartbeats, netcheck, slow_link
from .results import Result, Row
from .swarm import joining, membership, soak, start
from .swarm.storm import storm

__all__ = ["BENCHMARKS", "Result", "Row"]

BENCHMARKS: dict[str, collections.abc.Callable[..., Result]] = {
    "protocol": protocol.measure_protocol,
    "exchange": exchange.measure_exchange,
    "stall": stall.measure_stall,
    "straggler": stall.measure_straggler,
    "start": start.measure_start,
    "memory": memory.measure_memory,
    "control": control.measure_control,
    "slow-link": slow_link.measure_slow_link,
    "heartbeats": heartbeats.measure_heartbeats,
    "joining": joining.measure_joining,
    "joining-simulated": joining.measure_joining_simulated,
    "membership": membership.measure_membership,
    "topology": topology.measure_topology,
    "sim": simulator.measure_sim,
    "netcheck": netcheck.measure_network,
    "soak": soak.measure_soak,
    "storm": storm.measure_storm,
}
"""Every benchmark, by the name that people type, in the order in which they run.

Most take a minute or two, ``exchange``, ``stall``, ``topology``, ``joining`` and ``heartbeats``
some four, ``membership`` eight, ``sim`` and ``soak`` ten, ``netcheck`` fifteen, ``storm`` three
quarters of an hour. ``joining`` takes up to 16 GB where there is so much, the others less than 6.
``stall``, ``sim`` and ``storm`` install rivals the first time, ``control``, ``slow-link``,
``heartbeats`` and ``netcheck`` need root.
"""
