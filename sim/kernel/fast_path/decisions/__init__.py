"""What is decided while nothing goes wrong: one text, which Python runs and numba compiles."""

__all__: list[str] = []
