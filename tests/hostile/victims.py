"""Two live peers that train together, with or without keys, and their attackers."""

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

# Small enough for an attack to take effect within a second or two.
QUICK = {"suspect_s": 1.0, "dead_s": 2.0, "stall_s": 1.0, "retry_s": 0.1}

_T = TypeVar("_T")


def look(victim: Member, inspect: Callable[[Protocol], _T]) -> _T:
    """Read from a victim's protocol while no event changes it."""
    return victim.peer._running().look(inspect)


def norm(victim: Member) -> float:
    """The norm of a victim's model."""
    return float(sum(flat.double().norm() ** 2 for flat in victim.peer._vector.flats) ** 0.5)


class Run:
    """Victims ``v`` and ``w``, and connections of attackers to them.

    Args:
        folder: Folder for the files of the victims.
        keys: Give the victims keys; the attacker is then a member with its own key.
        rule: Rule of both victims.
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
        settings: dict[str, Any] = {"rule": rule, "linger_s": 1.0, "leave_s": 3.0}
        if self.keys is not None:
            settings["roster"] = self.keys.file(f"{name}.roster")
            settings["key"] = self.folder / f"{name}.key"
        return one_of(self.folder, name, 2, obeys=False, times=QUICK, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def stranger(self, *, has_key: bool = True) -> Stranger:
        """Connect to the first victim; with keys the attacker owns all names ``m.*``."""
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
        """Wait until a condition holds; fail if a victim fails."""

        def holds() -> bool:
            self.assert_well()
            return condition()

        until(holds)

    def happens(self, condition: Callable[[], bool], within_s: float = LIMIT_S) -> bool:
        """Return whether a condition holds within a time in seconds."""
        give_up_s = time.monotonic() + within_s
        while time.monotonic() < give_up_s:
            if condition():
                return True
            time.sleep(0.01)
        return False

    def exchange(self, count: int = 5) -> None:
        """Wait until each victim mixes *count* more shares, after all earlier messages."""
        goals = [(each, each.mixed() + count) for each in self.victims]
        self.wait(lambda: all(each.mixed() >= goal for each, goal in goals))

    def await_processed(self, stranger: Stranger) -> None:
        """Wait until the victim has processed all messages of a stranger."""
        before = stranger.victim
        stranger.drain()
        schema, stranger.schema = stranger.schema, bytes(16)
        stranger.learn()
        assert (before, schema) == (stranger.victim, stranger.schema)

    def assert_well(self) -> None:
        for each in self.victims:
            assert each.error is None and each.thread.is_alive(), each.error

    def audit_ledgers(self) -> Audit:
        """End both victims and audit their ledgers."""
        self.end()
        return audit(accounts(self.folder / "v", self.folder / "w"))

    def accepted(self, peer: str) -> list[int]:
        """Return the units that the first victim has accepted of each share of a peer."""
        rows = read_metrics(self.folder / "v" / "ledger.jsonl")
        accepted_rows = [
            row for row in rows if (row["kind"], row.get("peer")) == ("accepted", peer)
        ]
        return [row["units"] for row in accepted_rows]

    def end(self) -> None:
        for each in self.victims:
            each.halt.set()
        for each in self.victims:
            each.end()
        self._stack.close()
