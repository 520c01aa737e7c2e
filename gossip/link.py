"""What is known of the way toward one neighbor: how long an answer takes, and how fast bytes go."""

from collections.abc import Callable

from .config import ProtocolConfig
from .messages import Incarnation, PeerId
from .roundtrip import RoundTrip

__all__ = ["FRAMES_MAX", "Link", "Links", "messages_max", "patience_s", "window_bytes"]

FRAMES_MAX = 1 << 16
"""Frames of one share at most: a receiver keeps count of each."""

# A new measurement counts as much as all before it: links change, and frames may be off by half.
_SMOOTHING = 0.5


_WINDOW_FRAMES = 64

# A pause twenty times as long as any before is none that will end by itself.
_STALL_GAPS = 20
_STALL_SPAN = 5, 12
_MEMORY_RETRY_S = 60.0


def window_bytes(config: ProtocolConfig, frame_bytes: int, shards: int) -> int:
    """How much of one share may be on its way: so many bytes, and not too many frames.

    Sockets bound what they queue by counting messages: 64 frames of all shards together, and four
    messages for each shard, see `messages_max`.
    """
    frames = max(2, _WINDOW_FRAMES // shards)
    # A sender with frames of its own size must be able to send one.
    return max(frame_bytes, min(config.window_bytes, frames * frame_bytes))


def patience_s(config: ProtocolConfig, gap_s: float) -> float:
    """How long a transfer may stand still before it is given up, seconds.

    Args:
        config: Sizes and times.
        gap_s: The longest time that it, or another on the same way, stood still so far and then
            went on; 0 where that is not known.
    """
    if gap_s <= 0:
        return config.stall_s
    least_s, most_s = config.stall_s / _STALL_SPAN[0], config.stall_s * _STALL_SPAN[1]
    return min(max(_STALL_GAPS * gap_s, least_s), most_s)


def messages_max(shards: int) -> int:
    """How many messages about shares can be on their way to one neighbor, and some more."""
    return _WINDOW_FRAMES + 4 * shards + 12


class Link:
    """The way toward one neighbor.

    Args:
        config: Sizes and times.
        incarnation: Which life of the neighbor; what is known of an earlier one is of no use.
    """

    def __init__(self, config: ProtocolConfig, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.roundtrip = RoundTrip()
        self._memory_due_s = float("-inf")
        self._config = config
        self._bytes_s = 0.0

    def reads_memory(self, now: float) -> bool:
        """Whether it can read this peer's shared memory, as far as is known."""
        return now >= self._memory_due_s

    def did_not_read(self, now: float) -> None:
        """Note that it could not, which may be for want of files: it is tried again later."""
        self._memory_due_s = now + _MEMORY_RETRY_S

    def carried(self, size_bytes: int, seconds: float) -> None:
        """Note that so many bytes have arrived in so many seconds."""
        if seconds > 0 and size_bytes > 0:
            found = size_bytes / seconds
            before = self._bytes_s or found
            self._bytes_s = before + _SMOOTHING * (found - before)

    def frame_bytes(self, size_bytes: int) -> int:
        """Size of the frames of a share: a power of two, near what takes ``frame_s``.

        Args:
            size_bytes: Of the share.
        """
        config = self._config
        frame, bytes_s = config.frame_bytes, self._bytes_s
        if config.bandwidth_bytes_s is not None:
            bytes_s = min(bytes_s or config.bandwidth_bytes_s, config.bandwidth_bytes_s)
        if bytes_s:
            wanted = max(1, int(bytes_s * config.frame_s))
            frame = 1 << (wanted.bit_length() - 1)
        frame = max(config.frame_bytes_min, min(config.frame_bytes_max, frame))
        return max(frame, -(-size_bytes // FRAMES_MAX))


class Links:
    """The ways toward all neighbors, the same for all shards."""

    def __init__(self, config: ProtocolConfig) -> None:
        self._config = config
        self._links: dict[PeerId, Link] = {}

    def roundtrip_s(self, lives: Callable[[PeerId], bool]) -> float | None:
        """From a push to its answer, the mean over neighbors, seconds; None where none is known.

        Args:
            lives: Whether a neighbor counts: a slow one that is gone must not slow the others.
        """
        known = [link.roundtrip.mean_s for peer, link in self._links.items() if lives(peer)]
        trips = [mean_s for mean_s in known if mean_s is not None]
        return sum(trips) / len(trips) if trips else None

    def forget(self, peer: PeerId) -> None:
        """Keep nothing of the way toward one that is gone."""
        self._links.pop(peer, None)

    def to(self, peer: PeerId, incarnation: Incarnation) -> Link:
        """The way toward one life of a peer."""
        link = self._links.get(peer)
        if link is None or link.incarnation < incarnation:
            link = self._links[peer] = Link(self._config, incarnation)
        return link
