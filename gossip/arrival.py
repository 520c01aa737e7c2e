"""One share on its way in, and how fast it comes on."""

from dataclasses import dataclass, field

from .effects import ShareId
from .messages import Chunk, Offer

__all__ = ["Arrival"]


@dataclass(slots=True)
class Arrival:
    """A share that is not decided yet."""

    id: ShareId
    offer: Offer
    progress_s: float
    """When it last came on."""
    gap_s: float = 0.0
    """The longest pause between two of its frames so far."""
    began_s: float = 0.0
    """When its first frame came."""
    chunks: set[int] = field(default_factory=set)
    received_bytes: int = 0
    granted_bytes: int = 0
    granted_s: float = 0.0
    """When its sender was told last."""
    paced_bytes: int = 0
    """How much beyond what had come was granted last."""
    ended: bool = False
    attaching: bool = False
    """Whether it is being looked if it can be read from its sender's memory."""
    ready: bool = False
    """Whether it was found finite, so that a step may take it."""

    @property
    def whole(self) -> bool:
        """Whether all its bytes are staged."""
        return self.ended and self.received_bytes == self.offer.size_bytes

    def came_on(self, size_bytes: int, now: float) -> None:
        """Note that a frame has come."""
        if self.received_bytes:
            self.gap_s = max(self.gap_s, now - self.progress_s)
        else:
            self.began_s = now
        self.received_bytes += size_bytes
        self.progress_s = now

    def bytes_in(self, seconds: float) -> float:
        """How much of it comes in so many seconds, at the pace so far; without end if unknown."""
        past_s = self.progress_s - self.began_s
        # The first frame came with the offer, as it were: only what followed it tells a pace.
        come = self.received_bytes - self.offer.frame_bytes
        return come / past_s * seconds if past_s > 0 and come > 0 else float("inf")

    def wants(self, index: int) -> bool:
        """Whether there is room for a frame: in memory of its sender's there is none."""
        return not (self.whole or self.attaching or index in self.chunks)

    def has_frame(self, message: Chunk, frame_bytes: int) -> bool:
        """Whether a frame is where it says, and as long as it must be."""
        start, size = message.offset_bytes, self.offer.size_bytes
        if not 0 <= start < size or start != message.index * self.offer.frame_bytes:
            return False
        return frame_bytes == min(self.offer.frame_bytes, size - start)
