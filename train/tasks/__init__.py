"""Built-in tasks, and how a task is found by name."""

__all__: list[str] = []
