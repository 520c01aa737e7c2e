"""A peer's search for its swarm: send hellos, wait, and log what it waits for."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ...gossip import IncompatiblePeer, TransportError
from ...gossip.protocol.leave import STOPPED
from ...gossip.transport.addresses import (
    is_loopback,
    is_name_of_many,
    is_wildcard,
    join_address,
    key_in,
    look_up,
    split_address,
    with_key,
    without_key,
)
from ...gossip.transport.keys.key import key_text
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.transport.zmq_transport import local_host
from ...gossip.types import Incarnation
from ...gossip.wire.messages import Phase, later_life
from ..config import PeerConfig
from . import shutdown
from .peer_folder import PeerFolder
from .runner import PeerRuntime

__all__ = ["Search", "advertised", "bare_address", "join_swarm", "showing", "with_keys"]

_log = logging.getLogger("rumor")

_SAY_S: Final = 5.0
_POLL_S: Final = 0.05
# Seconds between two lookups of a name that stands for many machines.
_FRESH_S: Final = 2.0
_HINT: Final = " (a swarm with keys answers only peers with --key and --roster)"
_ALONE: Final = (
    "a peer with addresses to join does not found alone: start another peer with the same "
    "addresses, or one without join"
)
# Peers with one loopback address in common do not listen there: it is that of their founder.
_FOUNDER: Final = "start the founder, with this address as bind and without join"

# A returning peer may ask hundreds of addresses, too many for a line of the log.
_NAMED_MAX: Final = 4

# Number of later incarnations with its own name after which a peer gives up.
_INCARNATIONS_MAX: Final = 8


@contextmanager
def showing(config: PeerConfig) -> Iterator[None]:
    """Log whom a peer meets while it looks for listed addresses, unless the script logs itself."""
    if not config.join or _log.hasHandlers() or _log.level:
        yield
        return
    handler = logging.StreamHandler()
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(logging.NOTSET)


def join_swarm(
    open_runtime: Callable[[Incarnation], PeerRuntime],
    config: PeerConfig,
    folder: PeerFolder,
    id: str,
    stop: threading.Event,
    *,
    goes_on: bool = False,
) -> None:
    """Found or join a swarm, see `Peer.start`, until *stop* is set.

    *goes_on* is True if all founders come back, because the whole run was resumed.
    """
    incarnation = folder.next_incarnation(id)
    for _ in range(_INCARNATIONS_MAX):
        runtime = open_runtime(incarnation)
        if config.join:
            own, others = runtime.addresses, _others(config, runtime)
            where = f"listens at {_shown(own)}" if own else "only dials out"
            _log.info("%s %s, and looks for %s", id, where, _shown(others) or "others")
        try:
            Search(runtime, config, id, folder, goes_on=goes_on).run(stop)
        except BaseException:
            # Shards of an incomplete copy arrive one by one.
            if runtime.is_sound and runtime.look(lambda protocol: protocol.state.weight):
                shutdown.leave_or_warn(runtime, config.leave_s, 0.0)
            raise
        if runtime.outlived is None:
            return
        runtime.close()
        _log.warning(
            "others know incarnation %d of this peer's name, and this one is earlier: another peer "
            "may have its name, or the clock of this machine went back; beginning anew, as a later "
            "incarnation",
            runtime.outlived,
        )
        incarnation = later_life(runtime.outlived, incarnation)
    raise TransportError(f"others know ever later incarnations of {id}: is another peer called so?")


def advertised(
    config: PeerConfig, bound: Sequence[str], keyring: Keyring | None = None
) -> tuple[str, ...]:
    """Return the addresses to advertise for a peer that listens at *bound*; none if it only dials.

    With keys, each address includes this machine's public key, by which others authenticate it.
    """
    open_ones = [address for address in bound if not is_loopback(address)]
    remote = [each for each in config.join if not is_loopback(each.removeprefix("dns:"))]
    if open_ones and keyring is None:
        _log.warning(
            "listening at %s without keys: any process that reaches this port can take part. "
            "Use it in a network you trust, or give --key and --roster.",
            ", ".join(open_ones),
        )
    if config.advertise:
        found = (config.advertise,) if isinstance(config.advertise, str) else config.advertise
    elif bound and not open_ones and remote:
        _log.info("only dialling out: other machines cannot reach %s; see `bind`", ", ".join(bound))
        return ()
    else:
        toward = split_address(remote[0].removeprefix("dns:"))[0] if remote else None
        # A loopback address leads another machine to itself.
        found = tuple(
            join_address(local_host(toward), split_address(each)[1]) if is_wildcard(each) else each
            for each in open_ones or bound
        )
    if keyring is not None:
        found = tuple(with_key(each, key_text(keyring.public)) for each in found)
    return tuple(dict.fromkeys(found))


def with_keys(addresses: Sequence[str], keyring: Keyring | None) -> Iterator[str]:
    """Yield addresses with a key; an address without becomes one per machine of the roster."""
    for address in addresses:
        if keyring is None or key_in(address):
            yield address
            continue
        for key in keyring.candidates():
            yield with_key(address, key_text(key))


def _others(config: PeerConfig, runtime: PeerRuntime) -> list[str]:
    own = {*map(without_key, runtime.addresses)}
    return [address for address in config.join if without_key(address) not in own]


def _shown(addresses: Sequence[str]) -> str:
    return ", ".join(map(bare_address, addresses[:_NAMED_MAX]))


def bare_address(address: str) -> str:
    """Return an address as people write it: ``host:port``."""
    return without_key(address).removeprefix("tcp://")


class Search:
    """Brings a peer that has just started into a swarm, see `join_swarm`."""

    def __init__(
        self,
        runtime: PeerRuntime,
        config: PeerConfig,
        id: str,
        folder: PeerFolder,
        *,
        goes_on: bool = False,
    ) -> None:
        self._runtime, self._config = runtime, config
        past = folder.past
        was_member = past is not None or bool(folder.seeds)
        self._returning = past is not None and past.returns
        # A name of many machines, such as that of a headless Service, needs lookups.
        self._names = tuple(filter(is_name_of_many, config.join))
        self._found: dict[str, tuple[str, ...]] = {}
        self._why: dict[str, str] = {}
        self._looked_s = float("-inf")
        one_each = [each for each in config.join if not is_name_of_many(each)]
        self._seeds = tuple(with_keys((*one_each, *folder.seeds), runtime.transport.keyring))
        # If all come back, each waits until all are in the folder, as at the first start, and the
        # first with a checkpoint founds. A former member founds alone: the roll call is long over.
        goes_on = goes_on and config.rendezvous is not None
        self._awaited = config.founders if goes_on else 1
        self._founders = 1 if was_member or goes_on else config.founders
        # Remembered addresses may belong to other peers by now, whose refusal must not end the
        # search.
        self._may_refuse = not was_member
        self._there = 1
        self._meeting, self._mine = config.rendezvous, f"{id}.addr"
        if self._meeting is not None:
            self._meeting.mkdir(parents=True, exist_ok=True)
            for address in runtime.addresses[:1]:
                # Renamed when complete, so that others never read a partial file.
                draft = self._meeting / f".{self._mine}.{os.getpid()}"
                draft.write_text(address + "\n")
                draft.replace(self._meeting / self._mine)

    def run(self, stop: threading.Event) -> None:
        """Search until the peer is in a swarm, or others know a later incarnation of it."""
        started_s = time.monotonic()
        say_s = _SAY_S
        asked = _shown(_others(self._config, self._runtime)).replace(",", "")
        more = f"; `rumor doctor {asked}` says more" if asked else ""
        while not self._is_over():
            now = time.monotonic()
            waited_s = now - started_s
            if self._runtime.ended_by == STOPPED:
                stop.set()
            if stop.is_set():
                raise TransportError(f"stopped while joining: {self._wanting()}")
            if waited_s > (self._config.join_timeout_s or float("inf")):
                raise TransportError(f"found no swarm in {waited_s:.0f} s: {self._wanting()}{more}")
            if waited_s > say_s:
                say_s *= 2
                _log.warning("still joining after %.0f s: %s%s", waited_s, self._wanting(), more)
            self._runtime.wait_for_share(_POLL_S)

    def _is_over(self) -> bool:
        runtime = self._runtime
        seeds = (*self._seeds, *with_keys(self._look_up(), runtime.transport.keyring))
        if self._meeting is not None:
            paths = sorted(path for path in self._meeting.glob("*.addr") if path.name != self._mine)
            self._there = 1 + len(paths)
            seeds = (*seeds, *(path.read_text().strip() for path in paths))
        # A peer that founded now could finish before the others find it. Neither may it found while
        # its only seeds are names that do not resolve yet.
        if self._there < self._awaited or (self._names and not seeds):
            return False
        runtime.call("join", seeds=seeds, founders=self._founders, returning=self._returning)
        runtime.step(trained=False)
        if runtime.look(lambda protocol: protocol.phase) >= Phase.TRAINING:
            # The rule's initial values must be in place before training begins.
            runtime.settle_network()
            return True
        if runtime.outlived is not None:
            return True
        if (refusal := runtime.refusal) is not None and self._may_refuse:
            peer = refusal.peer
            raise IncompatiblePeer(f"cannot join {peer}: {refusal.reason}", peer)
        return False

    def _look_up(self) -> list[str]:
        """Return all addresses behind the names of many machines, except this peer's own."""
        if self._names and time.monotonic() - self._looked_s > _FRESH_S:
            for name in self._names:
                places, self._why[name] = look_up(name.removeprefix("dns:"))
                # An unreachable name server does not mean that the name has no addresses.
                self._found[name] = places or self._found.get(name, ())
            self._looked_s = time.monotonic()
        own = {without_key(address) for address in self._runtime.addresses}
        found = dict.fromkeys(each for several in self._found.values() for each in several)
        return [address for address in found if address not in own]

    def _wanting(self) -> str:
        if self._there < self._awaited:
            return f"{self._there} of {self._awaited} peers of the resumed run are there"
        members = self._runtime.look(lambda protocol: protocol.table.live())
        answering = {address for member in members for address in member.addresses}
        # In the order of the queries: given addresses come before remembered ones.
        own = self._runtime.addresses
        greeted = [address for address in self._runtime.queue.greeted if address not in own]
        words = [f"{name} does not resolve ({why})" for name, why in self._why.items() if why]
        for address in greeted[:_NAMED_MAX]:
            why = self._runtime.transport.refusal(address) or "does not answer"
            words.append(f"{address} {'answers' if address in answering else why}")
        if rest := greeted[_NAMED_MAX:]:
            words.append(f"of {len(rest)} others {sum(a in answering for a in rest)} answer")
        if self._founders > 1:
            words.append(f"{len(members)} of {self._founders} founders are there")
        elif len(members) > 1:
            first = min(member.id for member in members)
            is_founded = any(member.phase.takes_shares for member in members)
            waits = "waiting for a first share" if is_founded else f"{first} is about to found"
            words.append(waits)
        elif self._config.join and not self._returning:
            hint = _HINT if self._runtime.transport.keyring is None else ""
            join = self._config.join
            is_founders = len(join) == 1 and is_loopback(join[0].removeprefix("dns:"))
            words.append(f"{_FOUNDER if is_founders else _ALONE}{hint}")
        if (refusal := self._runtime.refusal) is not None:
            words.append(f"{refusal.peer} refuses this peer: {refusal.reason}")
        return "; ".join(words) or "no peer has answered yet"
