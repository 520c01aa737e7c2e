"""What a peer tells of itself: counts, events, and its status for whoever asks."""

__all__: list[str] = []
