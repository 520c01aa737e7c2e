"""Torch: the vector, the tasks and the live peer."""

__all__: list[str] = []
