"""Options of commands, made from the fields of dataclasses; options that several commands share."""

__all__: list[str] = []
