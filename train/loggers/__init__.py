"""Where rows of metrics go besides metrics.jsonl: TensorBoard, Trackio, W&B, MLflow, your own."""

from .logger import LoggedRun, Logger, LoggerSpec
from .registry import LOGGERS, check_loggers, make_loggers
from .writer import LogWriter

__all__ = [
    "LOGGERS",
    "LogWriter",
    "LoggedRun",
    "Logger",
    "LoggerSpec",
    "check_loggers",
    "make_loggers",
]
