"""Options of commands, made from the fields of dataclasses; those that several commands share."""

__all__: list[str] = []
