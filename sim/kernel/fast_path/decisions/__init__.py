"""Decisions of fault-free exchanges, written in Python and compiled by numba."""

__all__: list[str] = []
