"""Mutants: known bugs, planted into the protocol to see whether a campaign finds them."""

from .exchange import MUTANTS

__all__ = ["MUTANTS"]
