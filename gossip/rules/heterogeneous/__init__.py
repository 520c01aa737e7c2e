"""Rules that correct for differences between peers' data."""

__all__: list[str] = []
