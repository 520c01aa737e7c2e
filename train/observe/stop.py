"""Stop a whole swarm from outside: request it of every peer, and follow each to its end."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ...gossip import TransportError
from ...gossip.transport.keys.key import signed_stop
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.messages import LIVES_MAX, Phase, Stop, Stopping
from .observer import Observer
from .view import SwarmView

__all__ = ["End", "Stopped", "SwarmStop"]

_ROUND_S: Final = 0.3
"""Seconds between two requests to the same peer, as one may be lost."""

_SILENT_ROUNDS: Final = 10
"""Rounds until a peer that neither answers nor is named by another is given up."""


class End(StrEnum):
    """Progress of a peer toward its end."""

    ASKED = "asked"
    MERGING = "merging"
    LEAVING = "leaving"
    """It is handing over its weight."""
    DONE = "done"
    """It has the average and is writing its checkpoint."""
    GONE = "gone"
    """It has ended cleanly."""
    LOST = "lost"
    """Contact was lost before its end: it died, or is unreachable."""
    REFUSED = "refused"
    """It refuses to stop, and continues to train."""
    BACK = "back"
    """A later incarnation of it has started and trains."""


@dataclass(slots=True, kw_only=True)
class Stopped:
    """The last known state of one peer."""

    id: PeerId
    incarnation: Incarnation
    """The incarnation that got the request."""
    end: End = End.ASKED
    step: int = 0
    """Optimizer steps so far."""
    weight: int | None = None
    """Weight over all shards in its last answer; None if it never answered itself."""
    why: str = ""
    """Why it refuses; empty if it does not."""
    silent_rounds: int = 0
    """Number of rounds in a row in which no request could be sent to it."""

    @property
    def is_over(self) -> bool:
        """True if its end, clean or not, is final."""
        return self.end in (End.GONE, End.LOST, End.REFUSED, End.BACK)


class SwarmStop:
    """Requests a swarm to stop, with keys in the name of the roster's owner.

    Raises:
        TransportError: No peer answers in time, or the one that does belongs to no swarm.
    """

    def __init__(
        self, observer: Observer, *, timeout_s: float = 10.0, keyring: Keyring | None = None
    ) -> None:
        self._observer, self._keyring = observer, keyring
        # True once a peer reports that all others it knew, dial-out-only ones too, have agreed.
        self._agreed = False
        self.peers: dict[PeerId, Stopped] = {}
        view = observer.poll(timeout_s)
        self.swarm = view.swarm
        """Hexadecimal hash of the swarm's first model."""
        if not view.swarm:
            raise TransportError(
                "the peer there belongs to no swarm yet: it looks for one, and a signal ends it"
            )
        told = (peer.settings.get("shards", "") for peer in view.peers)
        self.shards = next((int(each) for each in told if each.isdecimal() and int(each)), 1)
        """Number of pieces that the model is cut into, each with weights of its own."""
        self._follow(view)

    @property
    def is_clean(self) -> bool:
        """True if all have ended cleanly."""
        return all(peer.end is End.GONE for peer in self.peers.values())

    def run(self, timeout_s: float) -> Iterator[Mapping[PeerId, Stopped]]:
        """Repeat the request to peers that have not ended; yield all peers after each round."""
        yield self.peers
        give_up_s = time.monotonic() + timeout_s
        while True:
            round_s = time.monotonic() + _ROUND_S
            request = self._request()
            for peer in self.peers.values():
                if not peer.is_over:
                    self._ask(peer, request)
            self._follow(self._observer.poll(_ROUND_S))
            yield self.peers
            now = time.monotonic()
            if all(peer.is_over for peer in self.peers.values()) or now >= give_up_s:
                return
            time.sleep(max(0.0, round_s - now))

    def _request(self) -> Stop:
        lives = tuple((peer.id, peer.incarnation) for peer in self.peers.values())
        request = Stop(lives[:LIVES_MAX])
        if self._keyring is not None:
            request = signed_stop(self._keyring.own, bytes.fromhex(self.swarm), request)
        return request

    def _ask(self, peer: Stopped, request: Stop) -> None:
        if self._observer.post(peer.id, peer.incarnation, request):
            peer.silent_rounds = 0
            return
        peer.silent_rounds += 1
        # As long as others are left, they may report its progress.
        others = (each for each in self.peers.values() if each is not peer)
        is_told_of = any(not each.is_over and not each.silent_rounds for each in others)
        if peer.end in (End.DONE, End.LEAVING) or (peer.weight is None and self._agreed):
            # It may be about to reconnect, or others may not have ended yet.
            peer.end = End.GONE if peer.silent_rounds > 1 else peer.end
        elif peer.silent_rounds > _SILENT_ROUNDS and not is_told_of:
            peer.end = End.LOST

    def _follow(self, view: SwarmView) -> None:
        """Record the progress of all peers, from their own reports and those of others."""
        for seen in view.peers:
            known, life = self.peers.get(seen.id), seen.incarnation
            if known is None:
                if seen.state != "left" and life is not None:
                    self.peers[seen.id] = Stopped(id=seen.id, incarnation=life, step=seen.step)
            elif (life or 0) > known.incarnation:
                # A peer that is back was restarted on purpose.
                known.end = End.BACK
            elif known.weight is None and not known.is_over:
                # The others' reports count if it has not answered the request itself.
                known.end, known.step = _ENDS.get(seen.state, known.end), seen.step
        for envelope in self._observer.take_answers():
            told, known = envelope.body, self.peers.get(envelope.source)
            if known is None or not isinstance(told, Stopping):
                continue
            if envelope.source_incarnation == known.incarnation:
                self._agreed |= told.done and told.phase is Phase.QUIET
                known.end, known.step = _end_of(told), told.step
                known.weight, known.why = told.weight, told.why


def _end_of(told: Stopping) -> End:
    if told.why:
        return End.REFUSED
    if told.done:
        return End.DONE
    if told.phase <= Phase.TRAINING:
        return End.ASKED
    return End.MERGING if told.phase <= Phase.QUIET else End.LEAVING


_ENDS: Final = {
    "left": End.GONE,
    "leaving": End.LEAVING,
    "finished": End.MERGING,
    "quiet": End.MERGING,
}
