"""Rules that send differences, in as few bits as one likes."""

__all__: list[str] = []
