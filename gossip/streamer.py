"""Frames of shares on their way out: as receivers have room for them, and no faster than asked."""

from .agenda import Agenda
from .config import ProtocolConfig
from .errors import RemoteProtocolError
from .link import Links, patience_s
from .messages import Chunk, End
from .pacer import Pacer
from .transfer import Transfer

__all__ = ["Streamer"]


class Streamer:
    """Sends the frames of one peer's transfers.

    Args:
        config: Sizes and times.
        agenda: Where effects go.
        links: Learn from grants how fast frames arrive.
        pacer: What may be sent at all.
    """

    def __init__(self, config: ProtocolConfig, agenda: Agenda, links: Links, pacer: Pacer) -> None:
        self._config = config
        self._agenda = agenda
        self._links = links
        self._pacer = pacer

    def grant(self, transfer: Transfer, credit_bytes: int, now: float) -> None:
        """Take in that the receiver has room up to this offset.

        Raises:
            RemoteProtocolError: That is more than a window beyond what it can have received.
        """
        if credit_bytes > transfer.sent_bytes + self._config.window_bytes:
            raise RemoteProtocolError("GRANT of more than a window", transfer.peer)
        more_bytes = credit_bytes - transfer.granted_bytes
        if more_bytes > 0:
            if transfer.granted_bytes:
                transfer.gap_s = max(transfer.gap_s, now - transfer.granted_s)
                link = self._links.to(transfer.peer, transfer.incarnation)
                link.carried(more_bytes, now - transfer.granted_s)
            transfer.granted_bytes, transfer.granted_s = credit_bytes, now

    def go_on(self, transfer: Transfer, now: float) -> bool:
        """Send what credit and bandwidth allow.

        Returns:
            Whether that was the rest of it.
        """
        transfer.deadline_s = now + patience_s(self._config, transfer.gap_s)
        offer, life = transfer.offer, (transfer.peer, transfer.incarnation)
        while transfer.sent_bytes < offer.size_bytes:
            start, stop = transfer.sent_bytes, transfer.next_stop_bytes
            if stop > transfer.granted_bytes:
                return False
            if not self._pacer.may_send(now):
                # It is not stalled: it goes on when there is bandwidth.
                transfer.deadline_s = float("inf")
                return False
            body = Chunk(offer.seq, start // offer.frame_bytes, start)
            self._agenda.send(*life, body, frame=(transfer.snapshot, start, stop - start))
            self._pacer.sent(stop - start, now)
            transfer.sent_bytes = stop
        self._agenda.send(*life, End(offer.seq))
        self.give_up(transfer)
        return True

    def acquire(self, transfer: Transfer) -> bool:
        """Whether a transfer may be offered now; if not, it will be its turn later."""
        return self._pacer.acquire((self._agenda.account.shard, transfer.peer))

    def give_up(self, transfer: Transfer) -> None:
        """Send no more of a transfer."""
        self._pacer.release((self._agenda.account.shard, transfer.peer))
