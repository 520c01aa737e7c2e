"""Loops over rows in machine code, where numba is installed."""

__all__: list[str] = []
