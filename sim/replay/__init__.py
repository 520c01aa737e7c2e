"""Feeds a live run's journals to the protocol again, and compares bit for bit."""

__all__: list[str] = []
