"""Shares on their way out and in: escrow, transfers, flow control."""

__all__: list[str] = []
