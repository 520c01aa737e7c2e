"""A peer of several processes on one machine: a group, whose leader runs the protocol."""

__all__: list[str] = []
