"""Membership: the member table, failure detection, and dialing of addresses."""

__all__: list[str] = []
