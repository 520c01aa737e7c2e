"""What a study came to: rankings, curves, and what graphs predict."""

__all__: list[str] = []
