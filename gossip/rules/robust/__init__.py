"""Mixing in which Byzantine peers can move a model only a little."""

__all__: list[str] = []
