"""Flow control: the rate limiter, credit windows, and estimates of round trip and throughput."""

from collections.abc import Callable

from ..config import ProtocolConfig
from ..types import Incarnation, PeerId

__all__ = [
    "FIRST_TIMEOUT_S",
    "FRAMES_MAX",
    "LinkEstimator",
    "LinkEstimators",
    "RateLimiter",
    "RttEstimator",
    "TransferKey",
    "messages_max",
    "patience_s",
    "window_bytes",
]


TransferKey = tuple[int, PeerId]
"""Names an outgoing transfer: shard and receiver."""


class RateLimiter:
    """Says when the next bytes may go out, for a rate that holds on average.

    One transfer at a time has the link, from its offer to its end, so that each is done as early as
    it can be; the others wait, and are not even offered, since a share that was offered and does
    not come would be given up by its receiver.
    """

    def __init__(self, bytes_s: float | None) -> None:
        self.is_limited = bytes_s is not None
        self._bytes_s = bytes_s
        self._free_s = float("-inf")
        self._holder: TransferKey | None = None
        self._paused = False
        self._waiting: dict[TransferKey, None] = {}

    def is_free(self, now: float) -> bool:
        """Whether something new may be pushed: nothing has the link, and it is idle."""
        return self._holder is None and not self._waiting and now >= self._free_s

    def acquire(self, key: TransferKey) -> bool:
        """Let a transfer have the link, if no other has it; if not, it waits, see `front`."""
        if self._bytes_s is None:
            return True
        if self._holder is None and next(iter(self._waiting), key) == key:
            self._waiting.pop(key, None)
            self._holder, self._paused = key, False
        if self._holder == key:
            return True
        self._waiting.setdefault(key)
        return False

    def may_send(self, now: float) -> bool:
        """Return True if the transfer that holds the link may send its next frame now."""
        if self._bytes_s is None:
            return True
        self._paused = now < self._free_s
        return not self._paused

    def release(self, key: TransferKey) -> None:
        self._waiting.pop(key, None)
        if self._holder == key:
            self._holder, self._paused = None, False

    def sent(self, size_bytes: int, now: float) -> None:
        if self._bytes_s is not None:
            self._free_s = max(self._free_s, now) + size_bytes / self._bytes_s

    @property
    def due_s(self) -> float:
        """When a transfer may go on that only bandwidth holds up, seconds."""
        held_up = self._paused or (self._holder is None and self._waiting)
        return self._free_s if held_up else float("inf")

    def front(self, now: float) -> TransferKey | None:
        """The transfer that may go on now, where only bandwidth held it up."""
        if now < self._free_s:
            return None
        if self._holder is not None:
            return self._holder if self._paused else None
        return next(iter(self._waiting), None)


FIRST_TIMEOUT_S = 1.0
"""How long to wait for an answer where no round trip was measured yet, seconds."""


class RttEstimator:
    """Smoothed time from a push to its ACK, the receiver's wait for a step included.

    Source: Jacobson, SIGCOMM 1988, appendix A; RFC 6298, section 2.

    >>> trip = RttEstimator()
    >>> trip.timeout_s
    1.0
    >>> trip.measured(0.2)
    >>> round(trip.timeout_s, 3)
    0.6
    """

    def __init__(self) -> None:
        self.mean_s: float | None = None
        """Smoothed round trip, seconds; None where none was measured."""
        self._deviation_s = 0.0
        self.timeout_s = FIRST_TIMEOUT_S

    def measured(self, seconds: float) -> None:
        if self.mean_s is None:
            self.mean_s, self._deviation_s = seconds, seconds / 2
        else:
            self._deviation_s += (abs(seconds - self.mean_s) - self._deviation_s) / 4
            self.mean_s += (seconds - self.mean_s) / 8
        self.timeout_s = self.mean_s + 4 * self._deviation_s


FRAMES_MAX = 1 << 16
"""Frames of one share at most: a receiver keeps count of each."""

# Fewer, and what one thread does waits for what another does.
_FRAMES_MIN = 8

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


class LinkEstimator:
    """The way toward one neighbor."""

    def __init__(self, config: ProtocolConfig, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.roundtrip = RttEstimator()
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
        if seconds > 0 and size_bytes > 0:
            found = size_bytes / seconds
            before = self._bytes_s or found
            self._bytes_s = before + _SMOOTHING * (found - before)

    def carried_none(self, frame_bytes: int, seconds: float) -> None:
        """Note that not one frame has arrived in so many seconds: it carries less than that.

        The next ones are smaller. Else a link over which a frame takes longer than a receiver waits
        would never carry a share, nor ever be measured.
        """
        found = frame_bytes / seconds
        self._bytes_s = min(self._bytes_s or found, found)

    def frame_bytes(self, size_bytes: int) -> int:
        """Size of the frames of a share: a power of two, near what takes ``frame_s``."""
        config = self._config
        frame, bytes_s = config.frame_bytes, self._bytes_s
        if config.bandwidth_bytes_s is not None:
            bytes_s = min(bytes_s or config.bandwidth_bytes_s, config.bandwidth_bytes_s)
        if bytes_s:
            wanted = max(1, int(bytes_s * config.frame_s))
            most = max(frame, size_bytes // _FRAMES_MIN)
            frame = 1 << (min(wanted, most).bit_length() - 1)
        frame = max(config.frame_bytes_min, min(config.frame_bytes_max, frame))
        return max(frame, -(-size_bytes // FRAMES_MAX))


class LinkEstimators:
    """The ways toward all neighbors, the same for all shards."""

    def __init__(self, config: ProtocolConfig) -> None:
        self._config = config
        self._links: dict[PeerId, LinkEstimator] = {}

    def roundtrip_s(self, is_alive: Callable[[PeerId], bool]) -> float | None:
        """From a push to its answer, the mean over neighbors, seconds; None where none is known."""
        known = [link.roundtrip.mean_s for peer, link in self._links.items() if is_alive(peer)]
        trips = [mean_s for mean_s in known if mean_s is not None]
        return sum(trips) / len(trips) if trips else None

    def forget(self, peer: PeerId) -> None:
        self._links.pop(peer, None)

    def to(self, peer: PeerId, incarnation: Incarnation) -> LinkEstimator:
        link = self._links.get(peer)
        if link is None or link.incarnation < incarnation:
            link = self._links[peer] = LinkEstimator(self._config, incarnation)
        return link
