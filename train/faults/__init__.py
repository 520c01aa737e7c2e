"""What goes wrong in a run, as data, and the transport that does it to a live peer's messages."""

__all__: list[str] = []
