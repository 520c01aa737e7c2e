"""Built-in tasks, and loading a task by name."""

__all__: list[str] = []
