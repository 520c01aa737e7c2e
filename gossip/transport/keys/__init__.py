"""Keys: which machines may take part, and under which names."""

__all__: list[str] = []
