"""Speed, measured as ratios within one run: developers' tools, run as ``python -m benchmarks``."""

__all__: list[str] = []
