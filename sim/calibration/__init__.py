"""Measured peers: as settings of a simulation, and what to train with on them."""

from .advise import Advice, Candidate, advise
from .calibration import Calibration, PeerPace, calibrate, read_calibration

__all__ = [
    "Advice",
    "Calibration",
    "Candidate",
    "PeerPace",
    "advise",
    "calibrate",
    "read_calibration",
]
