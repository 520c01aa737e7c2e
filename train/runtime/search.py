"""A peer's search for its swarm: greet, wait, and say what it waits for."""

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ...gossip import IncompatiblePeer, TransportError
from ...gossip.effects.events import Event, PeerDied, PeerRefused, StaleIncarnation
from ...gossip.protocol.leave import STOPPED
from ...gossip.transport.addresses import (
    is_loopback,
    is_name_of_many,
    is_wildcard,
    key_in,
    split_address,
    with_key,
    without_key,
)
from ...gossip.transport.keys.key import key_text
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.transport.zmq_transport import local_host
from ...gossip.types import Incarnation
from ...gossip.wire.messages import Phase
from ..config import PeerConfig
from ..storage.inputs import Call
from .runner import PeerRuntime
from .script.order import SwarmOrder
from .seeds import NamedSeeds

__all__ = ["Rendezvous", "Search", "StaleIncarnationError", "advertised", "with_keys"]


_log = logging.getLogger("rumor")


def advertised(
    config: PeerConfig, bound: Sequence[str], keyring: Keyring | None = None
) -> tuple[str, ...]:
    """Addresses to advertise for a peer that listens at *bound*; none if it only dials out.

    With keys, each has this machine's public one, by which others know that they have reached it.
    Warns where strangers can take part, because there are no keys.
    """
    if keyring is None:
        return _advertised(config, bound, warns=True)
    key = key_text(keyring.public)
    return tuple(with_key(each, key) for each in _advertised(config, bound, warns=False))


def _advertised(config: PeerConfig, bound: Sequence[str], *, warns: bool) -> tuple[str, ...]:
    open_ones = [address for address in bound if not is_loopback(address)]
    if open_ones and warns:
        _log.warning(
            "listening at %s without keys: anybody who reaches this port can take part. "
            "Use it in a network you trust, or give --key and --roster.",
            ", ".join(open_ones),
        )
    if config.advertise:
        return (config.advertise,) if isinstance(config.advertise, str) else config.advertise
    given = (address.removeprefix("dns:") for address in config.join)
    remote = [address for address in given if not is_loopback(address)]
    if bound and not open_ones and remote:
        _log.info("only dialling out: other machines cannot reach %s; see `bind`", ", ".join(bound))
        return ()
    toward = split_address(remote[0])[0] if remote else None
    # Another machine that dials a loopback address finds itself.
    found = (_dialable(address, toward) for address in open_ones or bound)
    return tuple(dict.fromkeys(found))


def _dialable(address: str, toward: str | None) -> str:
    if not is_wildcard(address):
        return address
    host = local_host(toward)
    return f"tcp://{f'[{host}]' if ':' in host else host}:{split_address(address)[1]}"


def with_keys(addresses: Sequence[str], keyring: Keyring) -> Iterator[str]:
    """Addresses with a key; one without stands for as many as there are machines in the roster."""
    for address in addresses:
        if key_in(address):
            yield address
            continue
        for key in keyring.candidates():
            yield with_key(address, key_text(key))


class Rendezvous:
    """One peer's use of the folder: it leaves its own address there and reads the others'.

    Args:
        folder: On one machine any folder, on several one that they share; made if absent.
        id: The peer's own name.
    """

    def __init__(self, folder: Path, id: str) -> None:
        self._folder = folder
        self._mine = f"{id}.addr"
        folder.mkdir(parents=True, exist_ok=True)

    def announce(self, address: str) -> None:
        """Leave the peer's own address; others see all of it or nothing."""
        draft = self._folder / f".{self._mine}.{os.getpid()}"
        draft.write_text(address + "\n")
        draft.replace(self._folder / self._mine)

    def others(self) -> tuple[str, ...]:
        """Addresses that others have left so far, sorted by their ids."""
        files = sorted(path for path in self._folder.glob("*.addr") if path.name != self._mine)
        return tuple(path.read_text().strip() for path in files)


_SAY_S: Final = 5.0
_POLL_S: Final = 0.05
_HINT: Final = " (a swarm with keys answers nobody without --key and --roster)"
_NO_FOUNDER: Final = (
    "if all peers were given join, start one without it, which founds the swarm, or give all the "
    "same list of addresses"
)

# A peer that comes back may ask hundreds of addresses: nobody reads so many, every five seconds.
_NAMED_MAX: Final = 4


class StaleIncarnationError(TransportError):
    """Others know a later incarnation of this very peer; only a still later one can join them.

    Args:
        incarnation: The incarnation they know.
    """

    def __init__(self, incarnation: Incarnation) -> None:
        super().__init__(
            f"others know incarnation {incarnation} of this peer's name, and this one is earlier: "
            "another peer may have its name, or the clock of this machine went back"
        )
        self.incarnation = incarnation


class Search:
    """Brings a peer that has just started into a swarm.

    Args:
        runtime: Runs its protocol.
        config: Where to look, and for how long.
        id: The peer's name.
        address: Where others reach it, for the folder where addresses are exchanged; None for
            one that only dials out.
        was_member: Whether an earlier incarnation was a member: then it founds nothing together
            with others, whose roll call is long over.
        goes_on: Whether all founders come back: then each waits until all are in the folder where
            addresses are exchanged, as at the first start, and the first one with a checkpoint
            founds.
        order: That of the swarms of this process, which is looked at meanwhile.
        returning: Whether it also has what its swarm could be founded anew from.
        known: Addresses that it knows from then.
        keyring: Its keys, where it has any: an address that was typed without a key stands for
            one with the key of each machine in the roster.
    """

    def __init__(
        self,
        runtime: PeerRuntime,
        config: PeerConfig,
        id: str,
        address: str | None,
        *,
        was_member: bool = False,
        goes_on: bool = False,
        order: SwarmOrder | None = None,
        returning: bool = False,
        known: Sequence[str] = (),
        keyring: Keyring | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._returning = returning
        self._named = NamedSeeds(config.join, () if address is None else (without_key(address),))
        self._keyring = keyring
        one_each = (each for each in config.join if not is_name_of_many(each))
        self._seeds = self._with_keys((*one_each, *known))
        self._meeting = Rendezvous(config.rendezvous, id) if config.rendezvous else None
        goes_on = goes_on and self._meeting is not None
        self._awaited = config.founders if goes_on else 1
        self._founders = 1 if was_member or goes_on else config.founders
        if self._meeting is not None and address is not None:
            self._meeting.announce(address)
        # Addresses that are remembered may belong to anybody by now: their word ends nothing.
        self._may_refuse = not was_member and not known
        self._met = 1
        self._order = order
        self._refusal: PeerRefused | None = None
        self._outlived: StaleIncarnation | None = None

    def hear(self, event: Event) -> None:
        """Learn, on any thread, why this peer cannot be one of the swarm as it is."""
        if isinstance(event, PeerRefused):
            self._refusal = event
        elif isinstance(event, StaleIncarnation):
            self._outlived = event
        elif isinstance(event, PeerDied):
            self._named.lost(self._meet)

    def close(self) -> None:
        """Look nobody up any more."""
        self._named.close()

    def _meet(self, found: Sequence[str]) -> None:
        """Greet whoever has an address now that stands behind a name."""
        self._runtime.later(Call("join", {"seeds": self._with_keys(found), "founders": 1}))

    def _with_keys(self, addresses: Sequence[str]) -> tuple[str, ...]:
        keyring = self._keyring
        return tuple(addresses if keyring is None else with_keys(addresses, keyring))

    def run(self, stop: threading.Event) -> None:
        """Search until the swarm is founded or joined.

        Args:
            stop: When set, the search is given up.

        Raises:
            TransportError: No swarm was found in time, or before *stop* was set.
            ConfigError: Another process starts its peers in another order.
            IncompatiblePeer: The swarm trains another model; the first difference is named.
            StaleIncarnationError: Others know a later incarnation of this peer.
        """
        started_s = spoke_s = time.monotonic()
        hint = _HINT if self._keyring is None else ""
        while not self._is_over():
            now = time.monotonic()
            if self._runtime.ended_by == STOPPED:
                stop.set()
            if stop.is_set():
                raise TransportError(f"stopped while joining: {self._wanting()}")
            if now - started_s > (self._config.join_timeout_s or float("inf")):
                waited = f"{now - started_s:.0f} s"
                raise TransportError(f"found no swarm in {waited}: {self._wanting()}{self._more()}")
            if now - spoke_s > _SAY_S:
                spoke_s = now
                waited_s = now - started_s
                wanting = f"{self._wanting()}{hint}{self._more()}"
                _log.warning("still joining after %.0f s: %s", waited_s, wanting)
            self._runtime.wait_for_share(_POLL_S)

    def _more(self) -> str:
        """Who can tell more of addresses that were typed."""
        asked = " ".join(
            without_key(address).removeprefix("tcp://")
            for address in self._config.join[:_NAMED_MAX]
        )
        return f"; `rumor doctor {asked}` says more" if asked else ""

    def _is_over(self) -> bool:
        runtime = self._runtime
        if self._order is not None:
            self._order.require_alike()
        seeds = (*self._seeds, *self._with_keys(self._named.addresses()))
        met = self._meeting.others() if self._meeting else ()
        self._met = 1 + len(met)
        if self._met < self._awaited:
            # A peer that founded now could finish before the others have found it.
            return False
        seeds = (*seeds, *met)
        if self._named.pending and not seeds:
            # With nobody to look for, it would found.
            return False
        told = {"seeds": seeds, "founders": self._founders, "returning": self._returning}
        runtime.call(Call("join", told))
        runtime.step(trained=False)
        if runtime.look(lambda protocol: protocol.phase) >= Phase.TRAINING:
            # Training must not begin beside the values that the rule starts from.
            runtime.settle_network()
            return True
        if self._outlived is not None:
            raise StaleIncarnationError(self._outlived.incarnation)
        if self._refusal is not None and self._may_refuse:
            peer, reason = self._refusal.peer, self._refusal.reason
            raise IncompatiblePeer(f"cannot join {peer}: {reason}", peer)
        return False

    def _wanting(self) -> str:
        """What the peer waits for, in words."""
        if self._met < self._awaited:
            return f"{self._met} of {self._awaited} peers of the resumed run are there"
        members = self._runtime.look(lambda protocol: protocol.live())
        answering = {address for member in members for address in member.addresses}
        # In the order in which they were asked: what was typed comes before what is remembered.
        greeted = tuple(dict(self._runtime.greeted))
        words = [*self._named.silence()]
        words += [
            f"{address} {'answers' if address in answering else self._silence(address)}"
            for address in greeted[:_NAMED_MAX]
        ]
        if len(greeted) > _NAMED_MAX:
            rest = greeted[_NAMED_MAX:]
            words.append(f"of {len(rest)} others {sum(a in answering for a in rest)} answer")
        if self._founders > 1:
            words.append(f"{len(members)} of {self._founders} founders are there")
        elif len(members) > 1:
            words.append("waiting for a first share")
        elif self._config.join and not self._returning:
            words.append(_NO_FOUNDER)
        if self._refusal is not None:
            words.append(f"{self._refusal.peer} refuses this peer: {self._refusal.reason}")
        return "; ".join(words) or "no peer has answered yet"

    def _silence(self, address: str) -> str:
        if refusal := self._runtime.refusal(address):
            return refusal
        why = self._runtime.unresolved(address)
        name = split_address(address)[0]
        if why:
            return f"cannot be dialed: the name {name} does not resolve ({why})"
        return "does not answer"
