"""Observe a swarm from outside, taking no weight and leaving no trace."""

__all__: list[str] = []
