"""Loops over rows in machine code, if numba is installed."""

__all__: list[str] = []
