"""Wire formats: how a share's numbers are written to bytes and read back."""

__all__: list[str] = []
