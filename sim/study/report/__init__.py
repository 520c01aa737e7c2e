"""The page that a study ends in: what was asked, what came out, and how to repeat it."""

from .page import write_report

__all__ = ["write_report"]
