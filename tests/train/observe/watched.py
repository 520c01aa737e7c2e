"""Real peers of this process, on threads of their own."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from rumor.gossip import ProtocolConfig, TransportError
from rumor.train import Peer, PeerConfig

from ...waiting import LIMIT_S

__all__ = ["Member"]


class Member:
    """A peer that steps every few milliseconds on a thread of its own."""

    def __init__(
        self, folder: Path, number: int, founders: int, dead_s: float = LIMIT_S, **settings: Any
    ) -> None:
        self.halt, self.inside = threading.Event(), threading.Event()
        protocol = ProtocolConfig(gossip_s=0.1, seek_s=0.05, found_s=0.3, dead_s=dead_s)
        config = PeerConfig(
            id=f"p{number}",
            out=folder / f"p{number}",
            rendezvous=folder / "meeting",
            founders=founders,
            protocol=protocol,
            linger_s=20.0,
            **settings,
        )
        # Those who found together begin alike.
        model = nn.Linear(4, 3)
        nn.init.ones_(model.weight)
        nn.init.ones_(model.bias)
        self.peer = Peer(model, config)
        self.thread = threading.Thread(target=self._train, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        assert self.peer.address is not None
        return self.peer.address

    def _train(self) -> None:
        with suppress(TransportError), self.peer:
            self.inside.set()
            while not self.halt.is_set():
                self.peer.step(loss=0.5)
                self.halt.wait(0.005)

    def die(self) -> None:
        """Fall silent, as one that was killed."""
        self.halt.set()
        self.peer._running()._fail(TransportError("killed"), ends=True)

    def end(self) -> None:
        """Wait until it is over, once it was told so."""
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()
