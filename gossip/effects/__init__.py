"""What the protocol asks for, what it tells people, and the ledger it writes."""

__all__: list[str] = []
