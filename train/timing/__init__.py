"""When: the clock of a peer, intervals, and learning rates by the swarm's clock."""

__all__: list[str] = []
