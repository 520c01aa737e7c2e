"""Peers for other people's trainers: transformers, Lightning, Accelerate."""

__all__: list[str] = []
