"""How fast shares get from one process into another, and what that takes from training."""

__all__: list[str] = []
