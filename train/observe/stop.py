"""Stopping a whole swarm from outside: every peer is asked, and followed to its end."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

from ...gossip import TransportError
from ...gossip.transport.keys.key import signed_stop
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.types import PeerId
from ...gossip.wire.messages import LIVES_MAX, Envelope, Hello, Member, Phase, Stop, Stopping
from .probe import HELLO, Probe

__all__ = ["End", "Stopped", "SwarmStop"]

_ROUND_S: Final = 0.3
"""Between two requests to the same peer: one may be lost."""

_MEET_S: Final = 3.0
"""How long connections may take: whoever is told first may be gone before others are reached."""

_SILENT_ROUNDS: Final = 10
"""Rounds after which a peer that cannot be asked, and that nobody tells of, is given up."""


class End(StrEnum):
    """How far a peer is on its way out."""

    ASKED = "asked"
    """It was named in a request, and has not answered."""
    MERGING = "merging"
    """It takes no more steps, and agrees with the others."""
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
    """A later life of it has begun, which trains."""


_OVER: Final = (End.GONE, End.LOST, End.REFUSED, End.BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """One peer, as it was last heard."""

    member: Member
    """As it was when it was asked."""
    end: End = End.ASKED
    step: int = 0
    """Optimizer steps that it has taken."""
    weight: int | None = None
    """Held of all shards when it was last heard; None where it was not heard itself."""
    why: str = ""
    """Why it does not obey; empty where it does."""
    silent_rounds: int = 0

    @property
    def id(self) -> PeerId:
        """Its name."""
        return self.member.id

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be waited for, well or not."""
        return self.end in _OVER


class SwarmStop:
    """Asks a swarm to stop, and says how far each peer is.

    Args:
        address: Of any member.
        timeout_s: How long to wait for its first answer, seconds.
        keyring: The roster owner's, where the swarm has keys.
        clock: Seconds that only go forward.

    Raises:
        TransportError: Nobody answers at *address*, or whoever does belongs to no swarm.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = 10.0,
        keyring: Keyring | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = Probe(timeout_s=timeout_s, keyring=keyring)
        self._keyring = keyring
        self._clock = clock
        self._request = Stop(())
        # Whether one has said that all whom it knew had agreed: so had those who only dial out.
        self._agreed = False
        self.peers: dict[PeerId, Stopped] = {}
        """By name, in the order in which they were heard of."""
        try:
            self._view = self._probe.view(address)
            if not self._view.swarm:
                raise TransportError(
                    f"{address} belongs to no swarm yet: it looks for one, and a signal ends it"
                )
        except BaseException:
            self._probe.__exit__()
            raise
        self.shards = self._probe.schema(address).shards
        """Into how many pieces the model is cut, each with weights of its own."""
        self._name(self._view.members)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._probe.__exit__()

    @property
    def swarm(self) -> str:
        """Hash of the swarm's anchor, hexadecimal."""
        return self._view.swarm.hex()

    @property
    def is_clean(self) -> bool:
        """Whether all have ended as they should."""
        return all(peer.end is End.GONE for peer in self.peers.values())

    def run(self, timeout_s: float) -> Iterator[Mapping[PeerId, Stopped]]:
        """Ask, and ask those again who have not ended.

        Args:
            timeout_s: How long to wait for the last one, seconds.

        Yields:
            All peers after each round, for whoever shows progress.
        """
        self._meet()
        yield self.peers
        give_up_s = self._clock() + timeout_s
        while True:
            for peer in [*self.peers.values()]:
                if not peer.is_over:
                    self.peers[peer.id] = self._asked(peer)
            for envelope in self._probe.heard(_ROUND_S):
                self._take(envelope)
            yield self.peers
            if all(peer.is_over for peer in self.peers.values()) or self._clock() >= give_up_s:
                return

    def _meet(self) -> None:
        """Open the ways to all who can be dialed, and hear whom they know."""
        met: set[PeerId] = set()
        give_up_s = self._clock() + _MEET_S
        while self._clock() < give_up_s:
            for peer in [*self.peers.values()]:
                if peer.id not in met and self._post(peer, HELLO):
                    met.add(peer.id)
            for envelope in self._probe.heard(_ROUND_S / 3):
                self._take(envelope)
            if all(peer.id in met or not self._places(peer) for peer in self.peers.values()):
                return

    def _places(self, peer: Stopped) -> list[str]:
        """Where a peer may be asked."""
        places = [*peer.member.addresses]
        if peer.id == self._view.id and self._view.place not in places:
            places.append(self._view.place)
        return places

    def _post(self, peer: Stopped, body: Hello | Stop) -> bool:
        places = self._places(peer)
        return any([self._probe.post(place, self._view, peer.member, body) for place in places])

    def _name(self, members: tuple[Member, ...]) -> None:
        """Note whom somebody knows, and ask for the end of those who are new, too."""
        for member in members:
            known = self.peers.get(member.id)
            if known is None and member.phase is not Phase.LEFT:
                self.peers[member.id] = Stopped(member=member, step=member.step)
            elif known is not None and member.incarnation > known.member.incarnation:
                # One that was asked and has come back was started by somebody who wants it to run.
                self.peers[member.id] = replace(known, end=End.BACK)
            elif known is not None and member.incarnation == known.member.incarnation:
                self.peers[member.id] = _as_told(known, member)
        lives = tuple((each.id, each.member.incarnation) for each in self.peers.values())
        if lives[:LIVES_MAX] != self._request.lives:
            request = Stop(lives[:LIVES_MAX])
            if self._keyring is not None:
                request = signed_stop(self._keyring.own, self._view.swarm, request)
            self._request = request

    def _asked(self, peer: Stopped) -> Stopped:
        """Ask a peer at all its addresses; one that has ended is not there any more."""
        if self._post(peer, self._request):
            self._post(peer, HELLO)
            return replace(peer, silent_rounds=0)
        silent = peer.silent_rounds + 1
        if peer.end in (End.DONE, End.LEAVING) or (peer.weight is None and self._agreed):
            # It may be about to connect again, or some others are not through yet.
            return replace(peer, end=End.GONE if silent > 1 else peer.end, silent_rounds=silent)
        if silent > _SILENT_ROUNDS and not self._is_told_of(peer):
            return replace(peer, end=End.LOST, silent_rounds=silent)
        return replace(peer, silent_rounds=silent)

    def _is_told_of(self, peer: Stopped) -> bool:
        """Whether somebody is left who may tell how far a peer is."""
        others = [each for each in self.peers.values() if each.id != peer.id]
        return any(not each.is_over and not each.silent_rounds for each in others)

    def _take(self, envelope: Envelope) -> None:
        body, known = envelope.body, self.peers.get(envelope.source)
        if isinstance(body, Hello):
            if envelope.swarm == self._view.swarm:
                self._name(body.members)
        elif isinstance(body, Stopping) and known is not None:
            if envelope.source_incarnation == known.member.incarnation:
                self._agreed |= body.done and body.phase is Phase.QUIET
                self.peers[known.id] = replace(
                    known, end=_end_of(body), step=body.step, weight=body.weight, why=body.why
                )


def _end_of(told: Stopping) -> End:
    if told.why:
        return End.REFUSED
    if told.done:
        return End.DONE
    if told.phase <= Phase.TRAINING:
        return End.ASKED
    return End.MERGING if told.phase <= Phase.QUIET else End.LEAVING


def _as_told(known: Stopped, member: Member) -> Stopped:
    """A peer as others tell of it, which counts where it cannot be asked itself."""
    if known.weight is not None or known.is_over:
        return known
    if member.phase is Phase.LEFT:
        return replace(known, end=End.GONE, step=member.step)
    if member.phase >= Phase.LEAVING:
        return replace(known, end=End.LEAVING, step=member.step)
    if member.phase >= Phase.FINISHED:
        return replace(known, end=End.MERGING, step=member.step)
    return replace(known, step=member.step)
