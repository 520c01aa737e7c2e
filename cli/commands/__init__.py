"""The commands of ``rumor``, one module each."""
