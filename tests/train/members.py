"""Real peers on threads of this process, which train until a test ends them."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from torch import nn

from rumor.gossip import ProtocolConfig, TransportError
from rumor.gossip.effects.ledger import Account
from rumor.train import Peer, PeerConfig
from rumor.train.storage.ledger_file import read_ledgers

from ..waiting import LIMIT_S

__all__ = ["QUICK", "Member", "accounts", "linear", "one_of", "settings", "swarm"]

QUICK: Mapping[str, Any] = MappingProxyType({"gossip_s": 0.1, "seek_s": 0.05, "found_s": 0.3})
"""Timeouts with which a swarm forms quickly."""


def linear(value: float = 1.0, rows: int = 3) -> nn.Linear:
    """A linear layer whose parameters all have one value."""
    made = nn.Linear(4, rows)
    for parameter in made.parameters():
        nn.init.constant_(parameter, value)
    return made


def settings(
    id: str | None, *, times: Mapping[str, Any] = MappingProxyType({}), **changes: Any
) -> PeerConfig:
    """Settings of a peer that does not wait for others at its end, with the `QUICK` protocol."""
    given: dict[str, Any] = {"linger_s": 0.0, "leave_s": LIMIT_S}
    return PeerConfig(id=id, protocol=ProtocolConfig(**{**QUICK, **times}), **given | changes)


class Member:
    """A peer that steps every few milliseconds on a thread of its own.

    Args:
        peer: The peer to run.
        turn: Called again and again in place of a plain step.
        obeys: Whether the loop ends at a request to stop.
    """

    def __init__(
        self, peer: Peer, turn: Callable[[], object] | None = None, *, obeys: bool = True
    ) -> None:
        self.peer = peer
        self.turn = turn or peer.step
        self.error: BaseException | None = None
        self.halt, self.inside = threading.Event(), threading.Event()
        self._obeys = obeys
        self.thread = threading.Thread(target=self._train, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        """Address on which the peer listens."""
        assert self.peer.address is not None
        return self.peer.address

    def entered(self) -> Self:
        """Wait until the peer has joined, and return this member."""
        assert self.inside.wait(LIMIT_S) and self.error is None, self.error
        return self

    def mixed(self) -> int:
        """Number of shares that the peer has mixed."""
        return self.peer.stats().counters.mixed

    def die(self) -> None:
        """Fall silent, as a killed process does."""
        self.halt.set()
        self.peer._running()._fail(TransportError("killed"), ends=True)

    def end(self, *, at_once: bool = False) -> None:
        """End the peer and wait for its thread; *at_once*, the peer does not wait for others."""
        self.halt.set()
        if at_once:
            self.peer._stop.set()
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()

    def _train(self) -> None:
        try:
            with self.peer:
                self.inside.set()
                while not (self.halt.is_set() or (self._obeys and self.peer.ended_by)):
                    self.turn()
                    self.halt.wait(0.002)
        except BaseException as error:
            self.error = error
            self.inside.set()


def one_of(folder: Path, id: str, founders: int, *, obeys: bool = True, **changes: Any) -> Member:
    """One of several equal founders, which wait for each other at their end."""
    together: dict[str, Any] = {
        "out": folder / id,
        "rendezvous": folder / "meeting",
        "founders": founders,
        "linger_s": LIMIT_S,
    }
    peer = Peer(linear(), settings(id, **together | changes))
    return Member(peer, lambda: peer.step(loss=0.5), obeys=obeys)


@contextmanager
def swarm(*members: Member, at_once: bool = False) -> Iterator[list[Member]]:
    """Run members for as long as the block lasts, then end them."""
    try:
        yield [member.entered() for member in members]
    finally:
        for member in members:
            member.halt.set()
        for member in members:
            member.end(at_once=at_once)


def accounts(*folders: Path) -> list[Account]:
    """Final accounts of all incarnations in the ledgers of these folders."""
    return [account for folder in folders for account in read_ledgers(folder)]
