"""Rules that take rounds together."""

__all__: list[str] = []
