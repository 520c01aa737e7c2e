"""A storm on real peers: predicted, done to them, and held against one process alone."""

__all__: list[str] = []
