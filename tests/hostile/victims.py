"""Two live peers that train together, without keys or with them, and whoever attacks them."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import zmq

from rumor.gossip import Audit, audit
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.transport.addresses import key_in, without_key
from rumor.gossip.transport.keys.key import Key, key_bytes
from rumor.train.storage.jsonl import read_metrics

from ..gossip.transport.keyrings import Swarm as Keys
from ..train.members import Member, accounts, one_of
from ..waiting import LIMIT_S, until
from .client import Stranger

__all__ = ["Run", "look", "norm"]

# Small enough for an attack to have had its effect within a second or two.
QUICK = {"suspect_s": 1.0, "dead_s": 2.0, "stall_s": 1.0, "retry_s": 0.1}

_T = TypeVar("_T")


def look(victim: Member, glance: Callable[[Protocol], _T]) -> _T:
    """Read something of a victim's protocol, while no event changes it."""
    return victim.peer._running().look(glance)


def norm(victim: Member) -> float:
    """The norm of a victim's model."""
    return float(sum(flat.double().norm() ** 2 for flat in victim.peer._vector.flats) ** 0.5)


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
        self.victims = self.v, self.w = self._victim("v", rule), self._victim("w", rule)
        for each in self.victims:
            each.entered()
        self.exchange()

    def _victim(self, name: str, rule: str) -> Member:
        given: dict[str, Any] = {"rule": rule, "linger_s": 1.0, "leave_s": 3.0}
        if self.keys is not None:
            given["roster"] = self.keys.file(f"{name}.roster")
            given["key"] = self.folder / f"{name}.key"
        return one_of(self.folder, name, 2, obeys=False, times=QUICK, **given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def stranger(self, *, has_key: bool = True) -> Stranger:
        """A connection to the first victim; with keys, names that begin with ``m.`` are its own."""
        keys = None
        if self.keys is not None and has_key:
            own = Key.read(self.folder / "m.key")
            keys = own.public, own.secret, key_bytes(key_in(self.v.address))
        stranger = Stranger(self._context, without_key(self.v.address), "m", keys)
        self._stack.callback(stranger.close)
        if has_key:
            stranger.learn()
        return stranger

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds, while both are well."""

        def holds() -> bool:
            self.assert_well()
            return condition()

        until(holds)

    def happens(self, condition: Callable[[], bool], within_s: float = LIMIT_S) -> bool:
        """Whether something comes to hold within a time, seconds."""
        give_up_s = time.monotonic() + within_s
        while time.monotonic() < give_up_s:
            if condition():
                return True
            time.sleep(0.01)
        return False

    def exchange(self, more: int = 5) -> None:
        """Wait until each has mixed some more shares: what was said before has been heard then."""
        goals = [(each, each.mixed() + more) for each in self.victims]
        self.wait(lambda: all(each.mixed() >= goal for each, goal in goals))

    def heard(self, stranger: Stranger) -> None:
        """Wait until all was heard that a stranger has said."""
        before = stranger.victim
        stranger.drain()
        schema, stranger.schema = stranger.schema, bytes(16)
        stranger.learn()
        assert (before, schema) == (stranger.victim, stranger.schema)

    def assert_well(self) -> None:
        for each in self.victims:
            assert each.error is None and each.thread.is_alive(), each.error

    def books(self) -> Audit:
        """All weight by the ledgers of both, once they have ended."""
        self.end()
        return audit(accounts(self.folder / "v", self.folder / "w"))

    def accepted(self, peer: str) -> list[int]:
        """How much the first victim has accepted of each share of a peer, in units."""
        rows = read_metrics(self.folder / "v" / "ledger.jsonl")
        told = [row for row in rows if (row["kind"], row.get("peer")) == ("accepted", peer)]
        return [row["units"] for row in told]

    def end(self) -> None:
        for each in self.victims:
            each.halt.set()
        for each in self.victims:
            each.end()
        self._stack.close()
