"""Published figures, reproduced by the code that is deployed."""

__all__: list[str] = []
