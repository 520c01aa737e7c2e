"""Commands about a running swarm: watch it, find out why a peer cannot join, end it."""

__all__: list[str] = []
