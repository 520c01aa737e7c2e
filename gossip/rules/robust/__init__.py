"""Mixing that members who lie can move by little."""
