"""A live peer: the protocol joined with sockets, threads and files."""

__all__: list[str] = []
