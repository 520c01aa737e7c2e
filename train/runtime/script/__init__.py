"""What a script that `rumor run` starts finds: its settings, and the model to begin with."""

__all__: list[str] = []
