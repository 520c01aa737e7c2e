"""Torture: the protocol under every fault at once, on a network no kinder than a real one.

Each seed stands for a swarm and a list of all that goes wrong with it (`draw`). It is run under
virtual time and every invariant is held after every event; then the faults stop and everything has
to settle (`attempt`). What fails is made small (`shrink`). `run_campaign` does so with many seeds.
"""

from .campaign import Broken, Campaign, Order, Progress, Worst, run_campaign
from .mutants import MUTANTS
from .scenario import OPTIONS, Scenario, draw
from .shrink import Draft, shrink
from .trial import Failure, Trial, attempt
from .violation import Violation

__all__ = [
    "MUTANTS",
    "OPTIONS",
    "Broken",
    "Campaign",
    "Draft",
    "Failure",
    "Order",
    "Progress",
    "Scenario",
    "Trial",
    "Violation",
    "Worst",
    "attempt",
    "draw",
    "run_campaign",
    "shrink",
]
