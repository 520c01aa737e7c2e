"""Runs of somebody's own training script."""

__all__: list[str] = []
