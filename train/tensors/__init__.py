"""The model as a flat vector: snapshots, shares, mixing, number formats."""

__all__: list[str] = []
