"""Engines that take the optimizer steps of a level."""

__all__: list[str] = []
