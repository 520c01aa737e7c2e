"""Faults of a run as data, and the transport that applies them to a live peer's messages."""

__all__: list[str] = []
