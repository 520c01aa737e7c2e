"""The report page of a study: its question, its results, and how to repeat it."""

from .page import write_report

__all__ = ["write_report"]
