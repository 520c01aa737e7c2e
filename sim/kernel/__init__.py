"""Simulated workers under virtual time: clock, network, faults."""

__all__: list[str] = []
