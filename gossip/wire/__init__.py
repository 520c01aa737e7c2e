"""Messages, their bytes, and the number formats of a share."""

__all__: list[str] = []
