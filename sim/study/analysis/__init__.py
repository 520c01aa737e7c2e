"""What a study came to: rankings, curves, findings, and what graphs predict."""

__all__: list[str] = []
