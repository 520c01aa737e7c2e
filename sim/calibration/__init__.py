"""Measured peers, as settings of a simulation."""

from .calibration import Calibration, PeerPace, calibrate, read_calibration

__all__ = ["Calibration", "PeerPace", "calibrate", "read_calibration"]
