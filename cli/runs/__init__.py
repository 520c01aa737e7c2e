"""Commands on runs that are over, or going on: measure, compare, repeat and merge them."""

__all__: list[str] = []
