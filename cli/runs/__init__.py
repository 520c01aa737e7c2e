"""Commands on finished or current runs: measure, compare, repeat and merge them."""

__all__: list[str] = []
