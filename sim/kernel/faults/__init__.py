"""Byzantine workers of simulations, and the report on a fleet's faults."""

__all__: list[str] = []
