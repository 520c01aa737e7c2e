"""Two live peers that train together, without keys or with them, and whoever attacks them."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import zmq

from rumor.gossip import Audit, audit
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.transport.addresses import key_in, without_key
from rumor.gossip.transport.keys.key import Key, key_bytes
from rumor.train.storage.ledger_file import read_ledger

from ..gossip.transport.keyrings import Swarm as Keys
from ..train.members import Member, one_of
from ..waiting import until
from .client import Stranger

__all__ = ["Run"]

OWN = "m"
"""The attacker's name; with keys, names that begin with it and a dot are its own, too."""

QUICK = {"suspect_s": 1.0, "dead_s": 2.0, "stall_s": 1.0, "retry_s": 0.1}
"""Times small enough for an attack to have had its effect within a second or two."""

_T = TypeVar("_T")


class Run:
    """Victims ``v`` and ``w``, and strangers toward the first."""

    def __init__(self, folder: Path, *, keys: bool = False) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._context = self._stack.enter_context(zmq.Context())
        self._stack.callback(self._context.destroy, 0)
        self.keys = Keys(folder, "v", "w", OWN) if keys else None
        self.victims = [self._victim(name) for name in ("v", "w")]
        self.v, self.w = self.victims
        before = [each.mixed() for each in self.victims]
        for each, mixed in zip(self.victims, before, strict=True):
            self.wait(lambda each=each, mixed=mixed: each.mixed() >= mixed + 5)  # type: ignore[misc]

    def _victim(self, name: str) -> Member:
        more: dict[str, Any] = {"rule": "gosgd:p=0.5", "linger_s": 1.0, "leave_s": 3.0}
        if self.keys is not None:
            roster = self.keys.file(f"{name}.roster")
            more |= {"key": self.folder / f"{name}.key", "roster": roster}
        return one_of(self.folder, name, 2, times=QUICK, **more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def stranger(self) -> Stranger:
        """A connection to the first victim."""
        address, keys = self.v.address, None
        if self.keys is not None:
            own = Key.read(self.folder / f"{OWN}.key")
            keys = own.public, own.secret, key_bytes(key_in(address))
        stranger = Stranger(self._context, without_key(address), OWN, keys)
        self._stack.callback(stranger.close)
        stranger.learn()
        return stranger

    def look(self, glance: Callable[[Protocol], _T]) -> _T:
        """Read something of the first victim's protocol, while no event changes it."""
        return self.v.peer._running().look(glance)

    def wait(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            if condition():
                return True
            self.assert_well()
            return False

        until(holds)

    def heard(self, stranger: Stranger) -> None:
        """Wait until all was heard that a stranger has said."""
        before = stranger.victim
        stranger.drain()
        schema, stranger.schema = stranger.schema, bytes(16)
        stranger.learn()
        assert (before, schema) == (stranger.victim, stranger.schema)

    def assert_well(self) -> None:
        """Make sure that both train on, and their network threads with them."""
        for each in self.victims:
            assert each.error is None and each.thread.is_alive(), each.error

    def books(self) -> Audit:
        """All weight by the ledgers of both, once they have ended."""
        self.end()
        folders = [self.folder / name for name in ("v", "w")]
        return audit(account for out in folders for account in read_ledger(out / "ledger.jsonl"))

    def end(self) -> None:
        for each in self.victims:
            each.halt.set()
        for each in self.victims:
            each.end()
        self._stack.close()
