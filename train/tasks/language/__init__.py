"""Tasks whose samples are text."""

__all__: list[str] = []
