"""Other systems, each measured in a virtual environment of its own."""

__all__: list[str] = []
