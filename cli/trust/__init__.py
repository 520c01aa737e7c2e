"""Keys and rosters on the command line."""

__all__: list[str] = []
