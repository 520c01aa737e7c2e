"""Torture: the protocol under every fault at once, on a network no kinder than a real one."""

__all__: list[str] = []
