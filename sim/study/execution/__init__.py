"""Planning, computing and storing trials."""

__all__: list[str] = []
