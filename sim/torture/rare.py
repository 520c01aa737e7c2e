"""What a campaign must have met: events that are rare by themselves, and what each of them is."""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["RARE"]

RARE: Mapping[str, str] = MappingProxyType(
    {
        "fence": "a question about a share that had not come decided it for ever",
        "partial accept": "a share was accepted in part, and the rest of its weight went back",
        "accept after the sender's death": "a share outlived the peer that had sent it",
        "stale incarnation": "a message came to a later life than the one it was meant for",
        "duplicate": "a message came twice, or again when it was old",
        "lost in a reset": "a connection was reset, and what was on its way was lost",
        "unsent": "a sender was told that there was no way to its neighbor",
        "chunked transfer given up": "a transfer stopped in its midst, and its weight went back",
        "refused: stalled": "a receiver gave a transfer up that did not go on",
        "refused: its sender restarted": "a receiver gave a transfer up whose sender was gone",
        "refused: not finite": "a share of a model that had diverged was noticed and refused",
        "suspected": "a peer was silent for so long that it was passed over",
        "recovered": "a peer that was suspected, or held for dead, was heard again",
        "split view": "a peer that ran was held for dead",
        "stranded": "weight was on its way to a peer when that was held for dead",
        "found": "what had become of such weight was found out after all",
        "written-off": "weight was on its way to a peer that came back with nothing",
        "written off what was accepted": "the same, and that peer had accepted it before",
        "join by copy": "a newcomer became a copy of its donor",
        "donor lost in mid-join": "a donor died while its copy was on the way",
        "newcomer referred": "a donor sent a newcomer on to one that had just joined",
        "leave with hand-over": "a leaver handed its weight on",
        "burned": "weight was destroyed, because nobody was there to take it",
        "restart with state": "a peer came back with its checkpoint",
        "mass restart": "all peers crashed at once, and came back",
        "outlived": "a peer came back under a name of which a later life was known",
        "mixed back": "in exact mode, what was not accepted was mixed back",
        "read from memory": "a share was read where it lay, in its sender's memory",
        "abandoned": "memory of such a share could not be used again, as its reader was gone",
        "skipped: no bandwidth": "a push was skipped, because it would have cost too many bytes",
    }
)
"""What each event is, by the name under which `Watch.seen` counts it."""
