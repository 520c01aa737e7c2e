"""Settings and initial model of a script that `rumor run` starts."""

__all__: list[str] = []
