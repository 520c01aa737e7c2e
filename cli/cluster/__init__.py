"""A user's script on several machines: by ssh, or as the tasks of a scheduler's job."""

__all__: list[str] = []
