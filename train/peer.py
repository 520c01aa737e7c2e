"""A live peer: what a training loop talks to."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from torch import nn

from ..gossip import (
    ConfigError,
    LocalProtocolError,
    Protocol,
    Rule,
    RumorError,
    TrainingError,
    TransportError,
    stream,
)
from ..gossip.effects import (
    Effect,
    Founded,
    Joined,
    PeerDied,
    PeerLeft,
    PeerMet,
    PeerRefused,
    SwarmGivenUp,
)
from ..gossip.link import messages_max
from ..gossip.transport import Transport
from ..gossip.weight import founders
from ..gossip.wire import parse_wire
from ..topology import View
from .config import PeerConfig
from .driver import Driver
from .fingerprint import travelling_tensors
from .inputs import Finish, Leave
from .journal import JOURNAL, Journal
from .journal_head import Head
from .ledger_file import LedgerFile
from .reach import advertised
from .search import Search
from .segments import Attachments, SegmentPool, host_id
from .tally import Tally
from .vector import Vector, is_finite
from .workbench import Workbench

__all__ = ["Peer"]

_log = logging.getLogger("rumor")

_POLL_S: Final = 0.05
_PACE_S_MAX: Final = 1.0

# Names cost a stranger nothing, and each would be a line in the log.
_REFUSED_MAX: Final = 64
_MERGING_POLL_S: Final = 0.005


class Peer:
    """One member of a swarm, around a model that is trained in the caller's own loop.

    ``with Peer(model) as peer:`` returns when the swarm is founded or joined; a newcomer's model
    then is a copy of its donor's. After each ``optimizer.step()`` call `step`. Leaving the block
    waits for the others to finish, for ``linger_s`` at most, and merges with them.

    Args:
        model: Any module, on its final device and in its final dtype. Parameters that require
            gradients and floating buffers are averaged; an optimizer of any kind may be made
            before or after.
        config: All settings. The arguments below change some of them.
        join: Addresses of any members; none to found a swarm.
        bind: Where to listen, such as ``"tcp://0.0.0.0:7700"``.
        topology: Spec of the graph that says who may push to whom.
        rule: The algorithm, such as ``GoSGD(p=0.01)``.
        seed: Of this peer's random choices.

    Raises:
        ConfigError: A setting is out of range.
        TrainingError: The model has nothing to share.
    """

    def __init__(
        self,
        model: nn.Module,
        config: PeerConfig | None = None,
        *,
        join: Sequence[str] | None = None,
        bind: str | None = None,
        topology: str | None = None,
        rule: Rule | str | None = None,
        seed: int | None = None,
    ) -> None:
        given: dict[str, object] = {"bind": bind, "topology": topology, "rule": rule, "seed": seed}
        given |= {"join": None if join is None else tuple(join)}
        changes: Any = {name: value for name, value in given.items() if value is not None}
        self.config = replace(config or PeerConfig(), **changes)
        self.id = self.config.named()
        self._rule = self.config.make_rule()
        self._model = model
        wire = parse_wire(self.config.protocol.wire)
        self.vector = Vector(
            model,
            self._rule.registers,
            shards=self.config.shards,
            keeps_anchor=wire.needs_anchor,
            sends_topk=not wire.is_dense,
        )
        self._driver: Driver | None = None
        self.stop = threading.Event()
        """Set it, on any thread, to give up looking for a swarm, or waiting within a step."""
        self.journaled: Mapping[str, Any] | None = None
        """What a replay needs to know of the training; set it before the peer starts, and it
        keeps a journal in its folder."""
        self.journal: Journal | None = None
        """The journal, where one is kept; it is made when the peer starts."""
        self.tally = Tally()
        """What was sent, mixed and refused so far."""
        self._search: Search | None = None
        self._refused: set[str] = set()
        self._addresses: tuple[str, ...] = ()
        self._left = False
        self._stepped_s: float | None = None
        self._pace_s = _POLL_S

    def __enter__(self) -> Self:
        """Found or join, and say meanwhile what is waited for.

        Raises:
            ConfigError: The address cannot be bound, or the folder cannot be written.
            TransportError: No swarm was found in time, or before `stop` was set.
            IncompatiblePeer: The swarm trains another model; the first difference is named.
        """
        try:
            bulk_messages_max = messages_max(self.config.shards)
            transport = Transport(self.config.bind, bulk_messages_max=bulk_messages_max)
        except TransportError as error:
            raise ConfigError(f"{error}: free the port, or name another with bind") from None
        try:
            self._driver = self._make_driver(transport)
        except BaseException:
            transport.close(0)
            raise
        self._driver.start()
        try:
            self._search = Search(self._driver, self.config, self.id, self.address)
            self._search.run(self.stop)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and not self._left:
                self.merge(self.config.linger_s)
        except RumorError as failure:
            error = failure
            raise
        finally:
            self._end(quietly=error is not None)

    def _end(self, *, quietly: bool) -> None:
        """Leave, unless that is done or needless, and close.

        Args:
            quietly: Whether an error is on its way already, which another must not hide.
        """
        try:
            if not self._left and not self._running().look(lambda protocol: protocol.done):
                self.leave()
        except RumorError as failure:
            if not quietly:
                raise
            _log.warning("could not leave in good order: %s", failure)
        finally:
            self._close()

    @property
    def weight(self) -> float:
        """What this peer holds, in founders; with shards, the mean over them."""
        return founders(self.weight_units) / self.config.shards

    @property
    def weight_units(self) -> int:
        """What this peer holds, in units, of all shards; what is in escrow is not counted."""
        return sum(self.shard_units)

    @property
    def shard_units(self) -> tuple[int, ...]:
        """What this peer holds of each shard, in units."""
        if self._driver is None:
            return (0,) * self.config.shards
        accounts = self._driver.look(lambda protocol: protocol.accounts)
        return tuple(account.weight for account in accounts)

    @property
    def live(self) -> tuple[str, ...]:
        """Ids of everybody who is believed to run, this peer included, sorted."""
        members = self._running().look(lambda protocol: protocol.live())
        return tuple(member.id for member in members)

    @property
    def queue(self) -> int:
        """Shares that have come, or are coming, and are not mixed yet."""
        return self._running().look(lambda protocol: protocol.staged)

    @property
    def address(self) -> str | None:
        """Where others reach this peer; None where it only dials out."""
        return self._addresses[0] if self._addresses else None

    def step(self) -> None:
        """Mix what has arrived and now and then push a share.

        Call it after each ``optimizer.step()``. It waits for nobody, unless the rule is a
        synchronous one (``dpsgd``, ``allreduce``): then it returns when the round is complete.

        Raises:
            TrainingError: A parameter is not finite, and nothing of it was sent; or a synchronous
                rule has lost a member, which is named.
            LocalProtocolError: The peer has finished or left.
        """
        now = time.monotonic()
        if self._stepped_s is not None:
            # Smoothed over some ten steps: it sets the pace of pushes after the last step.
            self._pace_s += (now - self._stepped_s - self._pace_s) / 10
        self._stepped_s = now
        self._running().step(trained=True, stop=self.stop)

    def wait(self, timeout_s: float) -> None:
        """Sleep until something has come since this was last called, or for so many seconds."""
        self._running().wait_for_share(timeout_s)

    def merge(self, timeout_s: float = 30.0) -> bool:
        """Take no more steps, wait for the others to finish, and agree with them.

        The model then is the swarm's average, nearly: what is left of the disagreement falls by a
        constant factor with each of `ProtocolConfig.merge_rounds`.

        Args:
            timeout_s: How long to wait for the others, seconds; this call ends by then.

        Returns:
            Whether all live peers had finished.
        """
        driver = self._running()
        driver.call(Finish())
        give_up_s = time.monotonic() + timeout_s
        while not driver.look(lambda protocol: protocol.done) and time.monotonic() < give_up_s:
            merging = driver.look(lambda protocol: protocol.merging)
            # Until the others are done, it pushes as often as it did while it trained.
            pace_s = _MERGING_POLL_S if merging else max(self._pace_s, _MERGING_POLL_S)
            time.sleep(min(pace_s, _PACE_S_MAX))
            driver.step(trained=False)
        driver.settle()
        return driver.look(lambda protocol: protocol.done)

    def leave(self) -> None:
        """Leave the swarm: resolve the escrow and hand the weight to a neighbor.

        Takes ``leave_s`` at most, even where nobody answers. A model with a value that is not
        finite hands nothing on; its weight is burned.
        """
        driver, self._left = self._running(), True
        driver.settle()
        burn = not all(is_finite(flat) for flat in self.vector.flats)
        driver.call(Leave(burn))
        give_up_s = time.monotonic() + self.config.leave_s
        while not driver.look(lambda protocol: protocol.done) and time.monotonic() < give_up_s:
            time.sleep(_POLL_S)
        # Others may still ask what became of the shares that were refused.
        time.sleep(_POLL_S)

    def _running(self) -> Driver:
        if self._driver is None:
            raise LocalProtocolError("the peer is not running: use it inside `with Peer(...)`")
        return self._driver

    def _make_driver(self, transport: Transport) -> Driver:
        config = self.config
        self._addresses = advertised(config, transport.address)
        if self.vector.anchor_flats is not None:
            self.vector.keep_anchor()  # what x is now, should it have changed since
        host = host_id() if config.protocol.shared_memory else b""
        protocol = Protocol(
            id=self.id,
            # A clock is the one counter that survives a restart without a file.
            incarnation=time.time_ns() // 1_000_000,
            schema=self.vector.schema,
            anchor=self.vector.anchor(),
            rule=self._rule,
            neighbors=View(config.topology, config.seed),
            rng=lambda purpose: stream(config.seed, self.id, purpose),
            config=config.protocol,
            addresses=self._addresses,
            keeps_anchor=self.vector.anchor_flats is not None,
            host=host,
        )
        ledger = None
        if config.out is not None:
            head = None
            if self.journaled is not None:
                if config.mixing != "step":
                    raise ConfigError(
                        f"mixing is {config.mixing!r}: a journal needs 'step', which a replay can "
                        "repeat"
                    )
                given = self.vector, self._rule, host, self.journaled
                head = Head.of(config, protocol.account, self._addresses, *given)
            path = config.out / "ledger.jsonl"
            with _making(config.out):
                ledger = LedgerFile(path, protocol.account, config.shards)
                if head is not None:
                    tensors = travelling_tensors(self._model, self.vector.schema)
                    self.journal = Journal(config.out / JOURNAL, head.as_json(), tensors)
        bench = Workbench(
            self.vector,
            rounding=lambda snapshot: stream(config.seed, self.id, f"rounding:{snapshot}"),
            segments=SegmentPool(pinned=not self.vector.is_here) if host else None,
            attachments=Attachments() if host else None,
            mixing=config.mixing,
        )
        return Driver(
            protocol,
            transport,
            bench,
            ledger,
            self.tally,
            self._hear,
            self.journal,
            config.mix_budget_s,
        )

    def _hear(self, event: Effect) -> None:
        match event:
            case Founded():
                _log.info("founded a swarm")
            case Joined(donor):
                _log.info("joined: the model is now a copy of %s's", donor)
                self._check_anchor()
            case PeerMet(peer):
                _log.info("met %s", peer)
            case PeerDied(peer):
                _log.warning("%s has fallen silent and is held for dead", peer)
            case PeerLeft(peer):
                _log.info("%s has left", peer)
            case PeerRefused(peer, reason):
                if self._search is not None:
                    self._search.refusal = event
                if peer not in self._refused and len(self._refused) < _REFUSED_MAX:
                    self._refused.add(peer)
                    _log.warning("%s cannot be one of this swarm: %s", peer, reason)
            case SwarmGivenUp():
                _log.warning("met another swarm, joining it: steps taken alone are lost")
            case _:
                pass

    def _check_anchor(self) -> None:
        # One that came in several shards can only be told when all of them are there.
        anchored, swarm = self._running().look(lambda p: (p.is_anchored, p.swarm))
        if self.config.shards > 1 and anchored:
            if self.vector.kept_anchor() != swarm:
                raise TrainingError("the anchor that came is not the one of this swarm: join again")

    def _close(self) -> None:
        if self._driver is not None:
            self._driver.stop()
        if self.journal is not None:
            self.journal.close()


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
