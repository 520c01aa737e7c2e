"""Stopping a whole swarm from outside: every peer is asked, and followed to its end."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

from ...gossip import TransportError
from ...gossip.transport.keys.key import signed_stop
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.messages import LIVES_MAX, Phase, Stop, Stopping
from .observer import Observer
from .view import SwarmView

__all__ = ["End", "Stopped", "SwarmStop"]

_ROUND_S: Final = 0.3
"""Between two requests to the same peer: one may be lost."""

_SILENT_ROUNDS: Final = 10
"""Rounds after which a peer that does not answer, and that no other names, is given up."""


class End(StrEnum):
    """How far a peer is on its way out."""

    ASKED = "asked"
    MERGING = "merging"
    LEAVING = "leaving"
    """It hands its weight on."""
    DONE = "done"
    """It has the average, and writes its checkpoint."""
    GONE = "gone"
    """It has ended as it should."""
    LOST = "lost"
    """It was not heard to its end: it died, or cannot be reached any more."""
    REFUSED = "refused"
    """It does not obey, and trains on."""
    BACK = "back"
    """A later incarnation of it has begun, which trains."""


_OVER: Final = (End.GONE, End.LOST, End.REFUSED, End.BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """One peer, as it was last heard."""

    id: PeerId
    incarnation: Incarnation
    """Which was asked."""
    end: End = End.ASKED
    step: int = 0
    """Optimizer steps that it has taken."""
    weight: int | None = None
    """Held of all shards when it was last heard; None where it was not heard itself."""
    why: str = ""
    """Why it does not obey; empty where it does."""
    silent_rounds: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be waited for, well or not."""
        return self.end in _OVER


class SwarmStop:
    """Asks a swarm to stop, and tells how far each peer is.

    Args:
        address: Of any member.
        timeout_s: How long to wait for its first answer, seconds.
        keyring: The roster owner's, where the swarm has keys.

    Raises:
        TransportError: No peer answers at *address*, or the one there belongs to no swarm.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = 10.0,
        keyring: Keyring | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keyring = keyring
        self._clock = clock
        # Whether a peer has said that all others that it knew had agreed, dial-out-only ones too.
        self._agreed = False
        self.peers: dict[PeerId, Stopped] = {}
        """By name, in the order in which they were heard of."""
        self._observer = Observer(address, keyring=keyring)
        try:
            view = self._observer.poll(timeout_s)
            self.swarm = view.swarm
            """Hash of the swarm's first model, hexadecimal."""
            if not view.swarm:
                raise TransportError(
                    f"{address} belongs to no swarm yet: it looks for one, and a signal ends it"
                )
        except BaseException:
            self._observer.close()
            raise
        told = (peer.settings.get("shards", "") for peer in view.peers)
        self.shards = next((int(each) for each in told if each.isdecimal() and int(each)), 1)
        """Into how many pieces the model is cut, each with weights of its own."""
        self._follow(view)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._observer.close()

    @property
    def is_clean(self) -> bool:
        """Whether all have ended as they should."""
        return all(peer.end is End.GONE for peer in self.peers.values())

    def run(self, timeout_s: float) -> Iterator[Mapping[PeerId, Stopped]]:
        """Ask, and ask those again that have not ended, for so many seconds; yield all peers after
        each round."""
        yield self.peers
        give_up_s = self._clock() + timeout_s
        while True:
            round_s = self._clock() + _ROUND_S
            request = self._request()
            for peer in [*self.peers.values()]:
                if not peer.is_over:
                    self.peers[peer.id] = self._asked(peer, request)
            self._follow(self._observer.poll(_ROUND_S))
            yield self.peers
            now = self._clock()
            if all(peer.is_over for peer in self.peers.values()) or now >= give_up_s:
                return
            time.sleep(max(0.0, round_s - now))

    def _request(self) -> Stop:
        lives = tuple((peer.id, peer.incarnation) for peer in self.peers.values())
        request = Stop(lives[:LIVES_MAX])
        if self._keyring is not None:
            request = signed_stop(self._keyring.own, bytes.fromhex(self.swarm), request)
        return request

    def _asked(self, peer: Stopped, request: Stop) -> Stopped:
        """Ask a peer at all its addresses; one that has ended is not there any more."""
        if self._observer.post(peer.id, peer.incarnation, request):
            return replace(peer, silent_rounds=0)
        silent = peer.silent_rounds + 1
        if peer.end in (End.DONE, End.LEAVING) or (peer.weight is None and self._agreed):
            # It may be about to connect again, or some others are not through yet.
            return replace(peer, end=End.GONE if silent > 1 else peer.end, silent_rounds=silent)
        # As long as others are left, they may tell how far it is.
        others = [each for each in self.peers.values() if each.id != peer.id]
        is_told_of = any(not each.is_over and not each.silent_rounds for each in others)
        if silent > _SILENT_ROUNDS and not is_told_of:
            return replace(peer, end=End.LOST, silent_rounds=silent)
        return replace(peer, silent_rounds=silent)

    def _follow(self, view: SwarmView) -> None:
        """Note how far all are, by their own words and those of others."""
        for seen in view.peers:
            known = self.peers.get(seen.id)
            if known is None:
                if seen.state != "left" and seen.incarnation is not None:
                    self.peers[seen.id] = Stopped(
                        id=seen.id, incarnation=seen.incarnation, step=seen.step
                    )
            elif (seen.incarnation or 0) > known.incarnation:
                # A peer that has come back was started again on purpose.
                self.peers[seen.id] = replace(known, end=End.BACK)
            elif known.weight is None and not known.is_over:
                # What others tell counts where it has not answered the request itself.
                end = _ENDS.get(seen.state, known.end)
                self.peers[seen.id] = replace(known, end=end, step=seen.step)
        for envelope in self._observer.take_answers():
            told, known = envelope.body, self.peers.get(envelope.source)
            if known is None or not isinstance(told, Stopping):
                continue
            if envelope.source_incarnation == known.incarnation:
                self._agreed |= told.done and told.phase is Phase.QUIET
                self.peers[known.id] = replace(
                    known, end=_end_of(told), step=told.step, weight=told.weight, why=told.why
                )


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
