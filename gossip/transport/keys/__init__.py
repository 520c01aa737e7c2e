"""Keys: who may take part, and in whose name."""

__all__: list[str] = []
