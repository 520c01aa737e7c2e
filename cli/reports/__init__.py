"""Terminal output of commands: progress, tables, and figures of a run or a topology."""

__all__: list[str] = []
