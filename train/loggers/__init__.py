"""Destinations for metrics besides metrics.jsonl: TensorBoard, Trackio, W&B, MLflow, your own."""

from .logger import LoggedRun, Logger

__all__ = ["LoggedRun", "Logger"]
