"""Rules whose peers take rounds together."""

__all__: list[str] = []
