"""Faults as files and settings have them."""

from typing import Any

__all__ = ["Fault", "fault"]

Fault = dict[str, Any]


def fault(at_s: float, kind: str, peer: int | str | None = None, **fields: Any) -> Fault:
    """One fault: when, what, and whom it strikes."""
    whom = {} if peer is None else {"peer": peer}
    return {"at_s": at_s, "kind": kind, **whom, **fields}
