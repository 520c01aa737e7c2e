"""Signed receipts of weight: who promised how much to whom, who took it, and who lied."""

__all__: list[str] = []
