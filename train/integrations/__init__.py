"""Peers for third-party trainers: transformers, Lightning, Accelerate."""

__all__: list[str] = []
