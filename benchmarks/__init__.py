"""Speed, measured as ratios within one run."""

from .registry import BENCHMARKS
from .results import Result, Row

__all__ = ["BENCHMARKS", "Result", "Row"]
