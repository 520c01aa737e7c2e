"""Messages over ZeroMQ."""

__all__: list[str] = []
