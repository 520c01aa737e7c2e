"""Speed, measured as ratios within one run."""

from .registry import BENCHMARKS
from .result import Result, Row

__all__ = ["BENCHMARKS", "Result", "Row"]
