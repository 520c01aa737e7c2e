"""Commands about a swarm that runs: see it, find out why a peer cannot join, end it."""

__all__: list[str] = []
