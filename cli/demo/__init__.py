"""``rumor demo``, and what it needs."""

__all__: list[str] = []
