"""Real peers in threads of this process, that train until they are told to end."""

import threading
from pathlib import Path
from typing import Any

from torch import nn

from rumor.gossip import ProtocolConfig, RumorError, TransportError
from rumor.train import Peer, PeerConfig

from ...waiting import LIMIT_S

__all__ = ["Member", "model"]


def model() -> nn.Module:
    """What they train; those who found together begin alike."""
    made = nn.Linear(4, 3)
    nn.init.ones_(made.weight)
    nn.init.ones_(made.bias)
    return made


class Member:
    """A peer that steps every few milliseconds on a thread of its own.

    Args:
        founders: How many found together.
        protocol: Changes of sizes and times.
        obeys: Whether its loop ends where it is told so.
        config: Further settings.
    """

    def __init__(
        self,
        folder: Path,
        id: str,
        founders: int,
        *,
        protocol: dict[str, Any] | None = None,
        obeys: bool = True,
        **config: Any,
    ) -> None:
        self.halt, self.inside = threading.Event(), threading.Event()
        times = {"gossip_s": 0.1, "seek_s": 0.05, "found_s": 0.3}
        told: dict[str, Any] = {
            "id": id,
            "out": folder / id,
            "rendezvous": folder / "meeting",
            "founders": founders,
            "protocol": ProtocolConfig(**{**times, **(protocol or {})}),
            "linger_s": LIMIT_S,
            "leave_s": LIMIT_S,
        }
        self.failure: BaseException | None = None
        self._obeys = obeys
        self.peer = Peer(model(), PeerConfig(**{**told, **config}))
        self.thread = threading.Thread(target=self._train, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self.peer.address is not None
        return self.peer.address

    def die(self) -> None:
        """Fall silent, as one that was killed."""
        self.halt.set()
        self.peer._running()._fail(TransportError("killed"), ends=True)

    def end(self) -> None:
        """Tell it to end, and wait until it has."""
        self.halt.set()
        self.peer._stop.set()
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()

    def _train(self) -> None:
        try:
            with self.peer:
                self.inside.set()
                while not (self.halt.is_set() or (self._obeys and self.peer.ended_by)):
                    self.peer.step(loss=0.5)
                    self.halt.wait(0.005)
        except (RumorError, SystemExit) as failure:
            self.failure = failure
