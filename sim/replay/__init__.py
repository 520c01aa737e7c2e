"""Journals of a live run fed to the protocol again, compared bit for bit."""

__all__: list[str] = []
