"""The training loop of `rumor peer`, and what it measures."""

__all__: list[str] = []
