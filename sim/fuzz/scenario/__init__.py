"""What one seed stands for: a swarm with its options, and a list of all that goes wrong with it."""

from .options import OPTIONS, draw, workers_of
from .scenario import CONFIG, FAULTS_S, WORKERS_MIN, ClippingGoSGD, Scenario

__all__ = [
    "CONFIG",
    "FAULTS_S",
    "OPTIONS",
    "WORKERS_MIN",
    "ClippingGoSGD",
    "Scenario",
    "draw",
    "workers_of",
]
