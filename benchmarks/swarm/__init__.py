"""Benchmarks of whole swarms: how peers start, join, and notice one another's ends."""

__all__: list[str] = []
