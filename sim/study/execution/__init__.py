"""How trials are planned, computed and kept."""

__all__: list[str] = []
