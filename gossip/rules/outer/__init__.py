"""Rules that communicate every few steps: outer rounds, which continue as peers come and go."""

__all__: list[str] = []
