"""The commands of ``rumor``, one module each, imported when they are run."""

__all__: list[str] = []
