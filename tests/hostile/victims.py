"""Two live peers that train together, without keys or with them, and whoever attacks them."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
import zmq
from torch import nn

from rumor.gossip import Audit, ProtocolConfig, audit
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.transport.addresses import key_in, without_key
from rumor.gossip.transport.keys.key import Key, key_bytes
from rumor.train import Peer, PeerConfig
from rumor.train.storage.ledger_file import read_ledger

from ..gossip.transport.keyrings import Swarm as Keys
from ..waiting import LIMIT_S, until
from .client import Stranger

__all__ = ["OWN", "QUICK", "SOON_S", "Run", "Victim"]

SOON_S = 1.0
"""What has not happened by then is taken never to happen."""

OWN = "m"
"""The attacker's name; with keys, names that begin with it and a dot are its own, too."""


QUICK = ProtocolConfig(
    gossip_s=0.1, seek_s=0.05, suspect_s=1.0, dead_s=2.0, found_s=0.3, stall_s=1.0, retry_s=0.1
)
"""Times small enough for an attack to have had its effect within a second or two."""

_T = TypeVar("_T")


class Victim:
    """A peer that takes steps on a thread of its own until it is told to end."""

    def __init__(self, config: PeerConfig) -> None:
        torch.manual_seed(0)  # all found from one anchor
        self.model = nn.Linear(4, 3)
        self.peer = Peer(self.model, config)
        self.error: BaseException | None = None
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def _train(self) -> None:
        try:
            with self.peer:
                while not self._halt.is_set():
                    self.peer.step()
                    time.sleep(0.002)
        except BaseException as error:
            self.error = error

    @property
    def is_well(self) -> bool:
        """Whether it trains on, and its network thread with it."""
        return self.error is None and self._thread.is_alive()

    def look(self, glance: Callable[[Protocol], _T]) -> _T:
        """Read something of its protocol, while no event changes it."""
        return self.peer._running().look(glance)

    @property
    def norm(self) -> float:
        """Of its model."""
        flats = self.peer._vector.flats
        return float(sum(flat.double().norm() ** 2 for flat in flats) ** 0.5)

    def halt(self) -> None:
        self._halt.set()

    def end(self) -> None:
        self.halt()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


class Run:
    """Victims ``v`` and ``w``, and strangers toward them.

    Args:
        folder: For their files.
        keys: Whether they have keys; the attacker then is a member with a key of its own.
        rule: Of both.
    """

    def __init__(self, folder: Path, *, keys: bool = False, rule: str = "gosgd:p=0.5") -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._context = self._stack.enter_context(zmq.Context())
        self._stack.callback(self._context.destroy, 0)
        self.keys = Keys(folder) if keys else None
        if self.keys is not None:
            for name in ("v", "w", "m"):
                self.keys.machine(name)
        self.victims = [self._victim(name, rule) for name in ("v", "w")]
        self.v, self.w = self.victims
        self.exchange()

    def _victim(self, name: str, rule: str) -> Victim:
        more: dict[str, Any] = {"id": name}
        if self.keys is not None:
            roster = self.keys.file(f"{name}.roster")
            more |= {"key": self.folder / f"{name}.key", "roster": roster}
        return Victim(
            PeerConfig(
                founders=2,
                rendezvous=self.folder / "meeting",
                rule=rule,
                out=self.folder / name,
                protocol=QUICK,
                linger_s=1.0,
                leave_s=3.0,
                **more,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def stranger(self, victim: Victim | None = None, *, has_key: bool = True) -> Stranger:
        """A connection to a victim, the first one unless said otherwise."""
        address = (victim or self.v).peer.address or ""
        keys = None
        if self.keys is not None and has_key:
            own = Key.read(self.folder / "m.key")
            server = key_bytes(key_in(address))
            keys = own.public, own.secret, server
        stranger = Stranger(self._context, without_key(address), OWN, keys)
        self._stack.callback(stranger.close)
        if has_key:
            stranger.learn()
        return stranger

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds, while both are well."""

        def holds() -> bool:
            if condition():
                return True
            self.assert_well()
            return False

        until(holds)

    def happens(self, condition: Callable[[], bool], within_s: float = LIMIT_S) -> bool:
        """Whether something comes to hold.

        Args:
            condition: What.
            within_s: How long it is watched for, seconds: `SOON_S` where it should not come.
        """
        give_up_s = time.monotonic() + within_s
        while time.monotonic() < give_up_s:
            if condition():
                return True
            time.sleep(0.01)
        return False

    def exchange(self, more: int = 5) -> None:
        """Wait until each has mixed some more shares: what was said before has been heard then."""
        before = [each.peer.stats().counters.mixed for each in self.victims]
        self.wait(
            lambda: all(
                each.peer.stats().counters.mixed >= mixed + more
                for each, mixed in zip(self.victims, before, strict=True)
            )
        )

    def heard(self, stranger: Stranger) -> None:
        """Wait until all was heard that a stranger has said."""
        before = stranger.victim
        stranger.drain()
        schema, stranger.schema = stranger.schema, bytes(16)
        stranger.learn()
        assert (before, schema) == (stranger.victim, stranger.schema)

    def assert_well(self) -> None:
        for each in self.victims:
            assert each.is_well, each.error

    def books(self) -> Audit:
        """All weight by the ledgers of both, once they have ended."""
        self.end()
        names = [each.peer.id for each in self.victims]
        folders = [each.peer.config.out for each in self.victims]
        assert None not in folders, names
        return audit(a for out in folders if out for a in read_ledger(out / "ledger.jsonl"))

    def accepted(self, victim: Victim, peer: str) -> list[int]:
        """How much a victim has accepted of each share of a peer, units, by the lines of its
        ledger."""
        assert victim.peer.config.out is not None
        text = Path(victim.peer.config.out, "ledger.jsonl").read_text()
        rows = map(json.loads, text.splitlines())
        kind = "accepted"
        return [row["units"] for row in rows if (row["kind"], row.get("peer")) == (kind, peer)]

    def end(self) -> None:
        for each in self.victims:
            each.halt()
        for each in self.victims:
            each.end()
        self._stack.close()
