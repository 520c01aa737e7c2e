"""A swarm of real protocols and vectors in one process, for tests."""

__all__: list[str] = []
