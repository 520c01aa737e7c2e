"""``python -m rumor.cli``, the same as ``rumor``."""

from . import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
