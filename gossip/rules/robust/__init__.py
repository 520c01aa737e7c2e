"""Mixing that members who lie can move by little."""

__all__: list[str] = []
