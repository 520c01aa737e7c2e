"""Effects that the protocol requests, events that it reports, and the ledger that it writes."""

__all__: list[str] = []
