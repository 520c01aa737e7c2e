"""A peer's files on disk: checkpoints, ledgers, journals, metrics."""

__all__: list[str] = []
