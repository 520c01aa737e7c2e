"""Fault-free exchanges, decided without messages: the very program that protocols emit."""

__all__: list[str] = []
