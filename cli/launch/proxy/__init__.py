"""Fault proxies: connections between peers that can be cut, delayed and reset."""

__all__: list[str] = []
