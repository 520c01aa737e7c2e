"""Keys, rosters and receipts on the command line."""

__all__: list[str] = []
