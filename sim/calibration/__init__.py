"""Measured peers: as settings of a simulation, and advice on how to train on them."""

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
