"""A swarm as seen from outside: no weight is taken, no trace left."""

__all__: list[str] = []
