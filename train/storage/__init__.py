"""What a peer keeps on disk: checkpoints, ledgers, journals, metrics."""

__all__: list[str] = []
