"""Rankings of a study's points, verdicts in words, and the search for the best values."""

__all__: list[str] = []
