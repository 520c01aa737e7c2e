"""Analysis of topologies: their shape, and how fast they mix."""

__all__: list[str] = []
