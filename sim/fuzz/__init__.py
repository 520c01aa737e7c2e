"""Fuzzing: the protocol under every fault at once, on a network as unreliable as a real one.

Each seed stands for a swarm and a list of faults (`draw`). The swarm runs under virtual time, and
every invariant is checked after every event; then the faults stop, and everything must settle
(`attempt`). `shrink` makes a failing scenario small. `run_campaign` does all this for many seeds.
"""

from .campaign import Campaign, CampaignConfig, FailedSeed, Progress, run_campaign
from .scenario import OPTIONS, Scenario, draw
from .shrink import ScenarioSpec, shrink
from .trial import Failure, Trial, attempt
from .violation import Violation

__all__ = [
    "OPTIONS",
    "Campaign",
    "CampaignConfig",
    "FailedSeed",
    "Failure",
    "Progress",
    "Scenario",
    "ScenarioSpec",
    "Trial",
    "Violation",
    "attempt",
    "draw",
    "run_campaign",
    "shrink",
]
