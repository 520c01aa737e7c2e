"""How numbers are written in other formats, and read: what a wire does to a share's bytes."""

__all__: list[str] = []
