"""Stop a whole swarm from outside: request it of every peer, and follow each to its end."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ...gossip import TransportError
from ...gossip.transport.keys.key import signed_stop
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.messages import LIVES_MAX, Phase, Stop, Stopping
from .observer import Observer
from .view import SwarmView

__all__ = ["End", "Stopped", "SwarmStop"]

End = Literal["asked", "merging", "leaving", "done", "gone", "lost", "refused", "back"]
"""Progress of a peer toward its end. A *done* peer has the average and writes its checkpoint; a
*lost* peer has died or is unreachable; a peer that is *back* was started again and trains."""

_ENDS: Final[Mapping[str, End]] = {
    "finished": "merging",
    "quiet": "merging",
    "leaving": "leaving",
    "left": "gone",
    "dead": "lost",
}

_ROUND_S: Final = 0.3
"""Seconds between two requests to the same peer, as one may be lost."""

_SILENT_ROUNDS: Final = 10
"""Rounds until a peer that neither answers nor is named by another is given up."""


@dataclass(slots=True, kw_only=True)
class Stopped:
    """The last known state of one peer."""

    id: PeerId
    incarnation: Incarnation
    """The incarnation that got the request."""
    end: End = "asked"
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
        return self.end in ("gone", "lost", "refused", "back")


class SwarmStop:
    """Requests a swarm to stop, with keys in the name of the roster's owner.

    Raises:
        TransportError: No peer answers in time, or the answering peer belongs to no swarm.
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
        return all(peer.end == "gone" for peer in self.peers.values())

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
        # A peer that is done closes once a request no longer names it.
        named = (peer for peer in self.peers.values() if peer.end != "done")
        lives = tuple((peer.id, peer.incarnation) for peer in named)
        request = Stop(lives[:LIVES_MAX])
        if self._keyring is None:
            return request
        return signed_stop(self._keyring.own, bytes.fromhex(self.swarm), request)

    def _ask(self, peer: Stopped, request: Stop) -> None:
        if self._observer.post(peer.id, peer.incarnation, request):
            peer.silent_rounds = 0
            return
        peer.silent_rounds += 1
        # As long as others are left, they may report its progress.
        others = (each for each in self.peers.values() if each is not peer)
        is_told_of = any(not each.is_over and not each.silent_rounds for each in others)
        if peer.end in ("done", "leaving") or (peer.weight is None and self._agreed):
            # It may be about to reconnect, or others may not have ended yet.
            peer.end = "gone" if peer.silent_rounds > 1 else peer.end
        elif peer.silent_rounds > _SILENT_ROUNDS and not is_told_of:
            peer.end = "lost"

    def _follow(self, view: SwarmView) -> None:
        """Record the progress of all peers, from their own reports and those of others."""
        for seen in view.peers:
            known, life = self.peers.get(seen.id), seen.incarnation
            if known is None:
                if not seen.is_gone and life is not None:
                    self.peers[seen.id] = Stopped(id=seen.id, incarnation=life, step=seen.step)
            elif (life or 0) > known.incarnation:
                # A peer that is back was restarted on purpose.
                known.end = "back"
            elif known.weight is None and not known.is_over:
                # The others' reports count if it has not answered the request itself.
                known.end, known.step = _ENDS.get(seen.state, known.end), seen.step
        while self._observer.answers:
            envelope = self._observer.answers.popleft()
            told, known = envelope.body, self.peers.get(envelope.source)
            if known is None or not isinstance(told, Stopping):
                continue
            if envelope.source_incarnation == known.incarnation:
                self._agreed |= told.done and told.phase is Phase.QUIET
                known.end, known.step = _end_of(told), told.step
                known.weight, known.why = told.weight, told.why


def _end_of(told: Stopping) -> End:
    if told.why or told.done:
        return "refused" if told.why else "done"
    # It has not left as long as it answers.
    return _ENDS.get(min(told.phase, Phase.LEAVING).name.lower(), "asked")
