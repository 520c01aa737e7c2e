"""The state machine of one peer, and the interface of the rule it follows."""

__all__: list[str] = []
