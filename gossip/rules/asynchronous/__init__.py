"""Rules that never wait for another peer."""

__all__: list[str] = []
