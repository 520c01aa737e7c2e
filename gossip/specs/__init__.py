"""Specs, the texts that name what rumor can do, and the parameters that they give."""

__all__: list[str] = []
