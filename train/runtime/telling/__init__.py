"""A peer's reports about itself: counts, events, and its status for observers."""

__all__: list[str] = []
