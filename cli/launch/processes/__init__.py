"""Processes of a run, and the one that they are forked from."""

__all__: list[str] = []
