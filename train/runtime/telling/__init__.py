"""What a peer reports of itself: counts, events, and its status for observers."""

__all__: list[str] = []
