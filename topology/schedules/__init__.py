"""Schedules of mixing matrices: which nodes mix from which, with what weight, round by round."""

__all__: list[str] = []
