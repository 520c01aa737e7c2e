"""Speed, measured as ratios within one run."""

__all__: list[str] = []
