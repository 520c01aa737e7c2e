"""Models of step times and networks."""

__all__: list[str] = []
