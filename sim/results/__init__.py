"""Results of a run: its figures, its files and its pictures."""

__all__: list[str] = []
