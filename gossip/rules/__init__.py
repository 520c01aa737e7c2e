"""The algorithms a peer can follow, found by name."""

__all__: list[str] = []
