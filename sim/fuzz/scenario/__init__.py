"""The scenario of a seed: a swarm with its options, and a list of faults."""

from .options import OPTIONS, draw, workers_of
from .scenario import FAULTS_S, WORKERS_MIN, Scenario

__all__ = ["FAULTS_S", "OPTIONS", "WORKERS_MIN", "Scenario", "draw", "workers_of"]
