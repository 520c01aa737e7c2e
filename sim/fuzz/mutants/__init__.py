"""Mutants: known bugs, planted into the protocol to see whether a campaign finds them."""

from .registry import MUTANTS

__all__ = ["MUTANTS"]
