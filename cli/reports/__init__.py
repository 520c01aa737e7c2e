"""Terminal output of commands."""

__all__: list[str] = []
