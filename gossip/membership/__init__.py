"""Who is in the swarm: the member table, failure detection, addresses that are dialled."""

__all__: list[str] = []
