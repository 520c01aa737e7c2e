"""``rumor launch``: several peers on this machine, each a process."""

__all__: list[str] = []
