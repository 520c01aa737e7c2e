"""Results of a study: rankings, curves, and the predictions of graphs."""

__all__: list[str] = []
