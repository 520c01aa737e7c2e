"""Values of all workers as one matrix, computed level by level."""

__all__: list[str] = []
