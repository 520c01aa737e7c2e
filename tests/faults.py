"""Faults, in the form that files and settings use."""

from typing import Any

__all__ = ["Fault", "fault"]

Fault = dict[str, Any]


def fault(at_s: float, kind: str, peer: int | str | None = None, **fields: Any) -> Fault:
    """Return one fault: its time, its kind and the peer that it hits."""
    target = {} if peer is None else {"peer": peer}
    return {"at_s": at_s, "kind": kind, **target, **fields}
