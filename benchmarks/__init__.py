"""Speed, measured as ratios within one run: developer tools, run as ``python -m benchmarks``."""

__all__: list[str] = []
