"""Pictures of runs, simulated and live, still and moving."""

__all__: list[str] = []
