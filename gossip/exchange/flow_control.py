"""Flow control: credit windows, and estimates of round trip and throughput."""

from ..config import ProtocolConfig
from ..types import Incarnation

__all__ = [
    "FIRST_TIMEOUT_S",
    "FRAMES_MAX",
    "LinkEstimator",
    "messages_max",
    "patience_s",
    "window_bytes",
]

FIRST_TIMEOUT_S = 1.0
"""Timeout for an answer before any round trip was measured, seconds."""

FRAMES_MAX = 1 << 16
"""Most frames of one share: a receiver keeps track of each."""

# With fewer, threads would wait for one another.
_FRAMES_MIN = 8

# A new measurement counts as much as all before it: links change, and frame sizes may be off by
# half.
_SMOOTHING = 0.5

_WINDOW_FRAMES = 64

# A pause twenty times as long as any before will not end by itself.
_STALL_GAPS = 20


def window_bytes(config: ProtocolConfig, frame_bytes: int, shards: int) -> int:
    """Return how much of one share may be in flight."""
    # Sockets limit their queues by number of messages, see `messages_max`.
    frames = max(2, _WINDOW_FRAMES // shards)
    # A sender with a different frame size must be able to send one frame.
    return max(frame_bytes, min(config.window_bytes, frames * frame_bytes))


def patience_s(config: ProtocolConfig, gap_s: float) -> float:
    """Return the timeout of a stalled transfer, given its longest pause so far, in seconds."""
    if gap_s <= 0:
        return config.stall_s
    return min(max(_STALL_GAPS * gap_s, config.stall_s / 5), config.stall_s * 12)


def messages_max(shards: int) -> int:
    """Return how many messages about shares can be in flight to one neighbor, plus a margin."""
    return _WINDOW_FRAMES + 4 * shards + 12


class LinkEstimator:
    """Estimates of the link to one incarnation of a neighbor.

    Source: Jacobson, SIGCOMM 1988, appendix A; RFC 6298, section 2.
    """

    def __init__(self, config: ProtocolConfig, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.roundtrip_s: float | None = None
        """Smoothed time from a push to its ACK, the wait for a step included; None if unknown."""
        self.timeout_s = FIRST_TIMEOUT_S
        self._deviation_s = 0.0
        self.memory_due_s = float("-inf")
        """Time from which it is offered this peer's shared memory, after it could not read that."""
        self._config = config
        self._bytes_s = 0.0

    def answered(self, seconds: float) -> None:
        if self.roundtrip_s is None:
            self.roundtrip_s, self._deviation_s = seconds, seconds / 2
        else:
            self._deviation_s += (abs(seconds - self.roundtrip_s) - self._deviation_s) / 4
            self.roundtrip_s += (seconds - self.roundtrip_s) / 8
        self.timeout_s = self.roundtrip_s + 4 * self._deviation_s

    def carried(self, size_bytes: int, seconds: float) -> None:
        if seconds > 0 and size_bytes > 0:
            found = size_bytes / seconds
            before = self._bytes_s or found
            self._bytes_s = before + _SMOOTHING * (found - before)

    def carried_none(self, frame_bytes: int, seconds: float) -> None:
        """Note that no frame has arrived in this time: the next ones are smaller."""
        # Otherwise a link on which a frame exceeds the receiver's timeout would never carry one.
        found = frame_bytes / seconds
        self._bytes_s = min(self._bytes_s or found, found)

    def frame_bytes(self, size_bytes: int) -> int:
        """Return the frame size for a share: a power of two that takes about ``frame_s``."""
        config = self._config
        frame, bytes_s = config.frame_bytes, self._bytes_s
        if bytes_s:
            wanted = max(1, int(bytes_s * config.frame_s))
            most = max(frame, size_bytes // _FRAMES_MIN)
            frame = 1 << (min(wanted, most).bit_length() - 1)
        frame = max(config.frame_bytes_min, min(config.frame_bytes_max, frame))
        return max(frame, -(-size_bytes // FRAMES_MAX))
