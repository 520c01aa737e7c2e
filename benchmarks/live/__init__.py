"""Benchmarks of live peers, which are processes of this machine."""

__all__: list[str] = []
