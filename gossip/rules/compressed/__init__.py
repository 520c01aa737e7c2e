"""Rules that send compressed differences."""

__all__: list[str] = []
