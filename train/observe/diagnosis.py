"""Why a peer on this machine could not join at an address, and what to do about it.

Peers are asked what any stranger may ask: they answer, and forget who asked. No weight moves.
"""

import ipaddress
import os
import resource
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ...gossip import RumorError
from ...gossip.config import ProtocolConfig
from ...gossip.errors import DecodeError, IncompatiblePeer
from ...gossip.transport.addresses import (
    bind_advice,
    is_loopback,
    is_near,
    parse_address,
    split_address,
)
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.wire.messages import Member, Phase
from ...gossip.wire.schema import Schema
from ..tensors.shared_memory import host_id
from .probe import LinkProbe, Probe, View, bare_address
from .reach import Reach, mechanism_at, reach_all

__all__ = [
    *("Cause", "Diagnosis", "Finding", "Newcomer"),
    *("check_listening", "described", "diagnose"),
]

_DAY_MS: Final = 86_400_000

_CLOCK_S: Final = 5.0
"""Clocks that are farther apart are worth a word; a newcomer is shut out by a day only."""

_FILES_PER_NEIGHBOR: Final = 8
"""Two sockets of two files each that dial it, and as many where it dials, too."""

_NAMED_MAX: Final = 4

_ADVERTISED_S: Final = 2.0


class Cause(StrEnum):
    """What keeps a peer from joining, or from all that it could have there."""

    NAME = "name"
    CLOSED = "closed"
    SILENT = "silent"
    UNREACHABLE = "unreachable"
    FILES = "files"
    FOREIGN = "foreign"
    VERSION = "version"
    KEYS = "keys"
    MODEL = "model"
    SWARM = "swarm"
    RULE = "rule"
    CLOCK = "clock"
    FINISHING = "finishing"
    FULL = "full"
    LISTEN = "listen"
    """The address to listen at cannot be had, or leads nowhere."""
    ONE_WAY = "one-way"
    """Somebody there cannot be dialed from here."""
    DIAL_ONLY = "dial-only"
    """Two of whom neither can be dialed."""
    MEMORY = "memory"
    """Peers on one machine that cannot read each other's memory."""


_ADVICE: Final = {
    Cause.NAME: "correct the name, or give the machine's number",
    Cause.CLOSED: "start the peer there, correct the port, or let it listen with "
    "--bind tcp://0.0.0.0:PORT, not at 127.0.0.1",
    Cause.SILENT: "see whether the machine is up, and open the port in the firewalls between",
    Cause.UNREACHABLE: "see to the route, or to the firewall that refuses",
    Cause.FILES: "allow more open files (ulimit -n)",
    Cause.FOREIGN: "correct the port: it is another program's",
    Cause.VERSION: "install the same version of rumor on all machines",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    cause: Cause
    why: str
    advice: str
    is_fatal: bool = True
    """Whether it keeps the peer out; else it costs something."""

    def __str__(self) -> str:
        return f"{self.why}; {self.advice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """The peer that would join from here, as far as it is known."""

    schema: Schema | None = None
    """Of its model; None to compare no model."""
    rule: str = ""
    fixed_members: bool = False
    """Whether its rule lets nobody join once training has begun."""
    needs_all_links: bool = False
    """Whether its rule has every pair of neighbors exchange directly."""
    swarm: bytes = b""
    """Hash of the swarm that it was of, where it comes back; empty else."""
    binds: tuple[str, ...] = ()
    """Where it would listen, in the inner form; nowhere where it only dials out."""
    advertised: tuple[str, ...] = ()
    """What others would be told to dial, where that is said; in the inner form."""
    shares_memory: bool = True
    keyring: Keyring | None = None
    findings: tuple[Finding, ...] = ()
    """What is wrong with it wherever it joins."""

    def only_dials(self, *, is_far: bool) -> bool:
        """Whether others could not dial it; those who are far need more than loopback."""
        if self.advertised and self.binds:
            return False
        return not any(not is_far or not is_loopback(address) for address in self.binds)


@dataclass(slots=True, kw_only=True)
class Diagnosis:
    """What was found at one address."""

    address: str
    """As people type it."""
    findings: list[Finding] = field(default_factory=list)
    peer: str = ""
    """Who answers there; empty where nobody did."""
    swarm: str = ""
    """Hash of its swarm's anchor, hexadecimal; empty where it belongs to none."""
    model: str = ""
    """What is trained there, in words."""
    link: LinkProbe | None = None
    members: tuple[Member, ...] = ()
    """Of the swarm: those who joined and have not left."""
    transport: str = ""
    """How models would travel to the peer there."""

    @property
    def can_join(self) -> bool:
        """Whether nothing was found that keeps a newcomer out."""
        return not any(finding.is_fatal for finding in self.findings)

    def note(self, cause: Cause, why: str, advice: str = "", *, is_fatal: bool = True) -> None:
        """Add a finding."""
        advice = advice or _ADVICE[cause]
        self.findings.append(Finding(cause=cause, why=why, advice=advice, is_fatal=is_fatal))


def diagnose(
    address: str,
    newcomer: Newcomer,
    *,
    timeout_s: float = 5.0,
    bytes_max: int = 4 << 20,
    config: ProtocolConfig | None = None,
) -> Diagnosis:
    """Find out what a newcomer would meet with at an address.

    Args:
        address: Of any member.
        newcomer: Who would join.
        timeout_s: How long to wait for one answer, seconds.
        bytes_max: How much may be sent to measure how fast the way is.
        config: Sizes and times of the swarm.

    Raises:
        ConfigError: This is no address.
    """
    place = parse_address(address)
    found = Diagnosis(address=bare_address(place), findings=[*newcomer.findings])
    case = _Case(found, place, newcomer, timeout_s, config or ProtocolConfig())
    # With keys, whoever connects without a word is a line in the log there: only where it helps.
    if newcomer.keyring is None and not case.is_reached():
        return found
    keyring = newcomer.keyring
    version = 0 if keyring is None else keyring.roster.version
    try:
        with Probe(timeout_s=timeout_s, keyring=keyring) as probe:
            found.link = probe.sound(place, bytes_max=bytes_max)
            case.compare(probe.schema(place))
            case.check_clock(probe)
            case.look(probe.view(place), probe)
            if keyring is not None and (newest := keyring.roster.version) > version:
                why = f"version {version} of the roster was here, and {newest} is there"
                found.note(Cause.KEYS, why, "it was brought up to date", is_fatal=False)
    except RumorError as error:
        case.explain(error)
    return found


def described(schema: Schema) -> str:
    """A model in words, as far as its schema says.

    >>> from rumor.gossip.wire.schema import TensorSpec
    >>> described(Schema((TensorSpec("weight", (2, 3), "float32"),)))
    '1 tensor from weight (2, 3) float32 to weight (2, 3) float32, 64 bytes'
    """
    number = len(schema.tensors)
    ends = f" from {schema.tensors[0]} to {schema.tensors[-1]}" if number else ""
    shards = f", in {schema.shards} shards" if schema.shards > 1 else ""
    frozen = f", {len(schema.frozen)} frozen parameters" if schema.frozen else ""
    size = f"{schema.share_bytes} bytes{shards}{frozen}"
    return f"{number} tensor{'s' * (number != 1)}{ends}, {size}"


class _Case:
    """One address, while it is looked into."""

    def __init__(
        self,
        found: Diagnosis,
        place: str,
        newcomer: Newcomer,
        timeout_s: float,
        config: ProtocolConfig,
    ) -> None:
        self._found = found
        self._place = place
        self._newcomer = newcomer
        self._timeout_s = timeout_s
        self._config = config
        self._reach: Reach | None = None

    def is_reached(self) -> bool:
        """Whether something listens there that speaks as peers do, with keys or without as here."""
        met = self._reach = mechanism_at(self._place, self._timeout_s)
        has_keys = self._newcomer.keyring is not None
        if met.obstacle is not None:
            self._found.note(Cause(met.obstacle), met.why)
        elif met.mechanism == "CURVE" and not has_keys:
            why = "its swarm has keys, and this peer would have none"
            advice = "give --key and --roster: `rumor keygen` makes a key, the owner lets it in"
            self._found.note(Cause.KEYS, why, advice)
        elif met.mechanism == "NULL" and has_keys:
            why = "it has no keys, and this peer would have some"
            advice = "leave out --key and --roster, or give them to all its peers"
            self._found.note(Cause.KEYS, why, advice)
        else:
            return True
        return False

    def explain(self, error: RumorError) -> None:
        """Say why somebody who listens did not answer."""
        if isinstance(error, IncompatiblePeer):
            self._found.note(Cause.VERSION, str(error).rpartition(": ")[2])
        elif isinstance(error, DecodeError):
            self._found.note(Cause.FOREIGN, f"what answers is no peer: {error}")
        elif self._newcomer.keyring is None:
            why = "it speaks ZeroMQ and does not answer: another program, or a peer that stands"
            self._found.note(Cause.FOREIGN, f"{why} still", "see what runs there")
        elif self.is_reached():
            told = str(error).rpartition("answer: ")[2]
            why = f"it {told}" if told.startswith(("has ", "refuses ")) else f"no answer: {told}"
            advice = (
                f"version {self._newcomer.keyring.roster.version} of the roster is here: put the "
                "owner's newest one here, and where a member runs"
            )
            self._found.note(Cause.KEYS, why, advice)

    def compare(self, schema: Schema) -> None:
        """Note which model is trained there, and the first difference from the own one."""
        self._found.model = described(schema)
        own = self._newcomer.schema
        difference = None if own is None else own.difference(schema)
        if difference is not None:
            why = f"it trains another model: {difference}"
            self._found.note(Cause.MODEL, why, "give the same task and options here as there")

    def check_clock(self, probe: Probe) -> None:
        """See whether the peer there believes that a life could begin now."""
        now_ms = int(time.time() * 1000)
        if not probe.believes(self._place, now_ms):
            why = "by its clock, a peer that starts here now comes from the far future"
            advice = "its clock is more than a day behind this one: set both by the same time"
            self._found.note(Cause.CLOCK, why, advice)

    def look(self, view: View, probe: Probe) -> None:
        """Note what the peer there says of itself and its swarm."""
        found, newcomer = self._found, self._newcomer
        found.peer, found.swarm = view.id, view.swarm.hex()
        found.members = tuple(m for m in view.members if Phase.JOINING < m.phase < Phase.LEFT)
        if newcomer.swarm and view.swarm and view.swarm != newcomer.swarm:
            there, here = view.swarm.hex()[:8], newcomer.swarm.hex()[:8]
            why = f"it belongs to swarm {there}, and the checkpoint here is of swarm {here}"
            advice = "a peer that returns joins its own swarm only: begin in a new folder"
            found.note(Cause.SWARM, why, advice)
        self._look_at_clocks(view)
        self._look_at_phases(view)
        self._look_at_ways(view, probe)
        self._look_at_memory(view)
        self._look_at_files()

    def _look_at_clocks(self, view: View) -> None:
        now_ms = int(time.time() * 1000)
        ahead = [(m.incarnation - now_ms, m.id) for m in view.members]
        most_ms, latest = max(ahead, default=(0, ""))
        if most_ms > self._config.incarnation_ahead_max:
            why = f"{latest} began {most_ms / _DAY_MS:.1f} days in the future by this clock"
            advice = "this machine's clock is behind: set both by the same time"
            self._found.note(Cause.CLOCK, why, advice)
        elif most_ms > _CLOCK_S * 1000:
            why = f"{latest} began {most_ms / 1000:.0f} s in the future by this clock"
            advice = "set both by the same time: logs go by it"
            self._found.note(Cause.CLOCK, why, advice, is_fatal=False)

    def _look_at_phases(self, view: View) -> None:
        found, newcomer = self._found, self._newcomer
        phases = {member.phase for member in found.members}
        if newcomer.fixed_members and Phase.TRAINING in phases:
            why = f"{newcomer.rule} lets nobody join a swarm that has begun"
            advice = "start all of its peers together (--founders), or use a rule such as gosgd"
            found.note(Cause.RULE, why, advice)
        if phases and Phase.TRAINING not in phases:
            why = "its swarm is finishing: nobody there takes steps any more"
            found.note(Cause.FINISHING, why, "start another one, or go on from its checkpoints")
        elif view.own.phase > Phase.FINISHED:
            others = [m for m in found.members if m.phase is Phase.TRAINING and m.addresses]
            where = ", ".join(bare_address(m.addresses[0]) for m in others[:_NAMED_MAX])
            advice = f"join at {where}" if where else "join another member"
            found.note(Cause.FINISHING, f"{view.id} is about to go", advice)
        if len(view.members) >= self._config.members_max:
            why = f"it keeps {len(view.members)} names in mind, for which alone there is room"
            found.note(Cause.FULL, why, "wait until some have gone, or start a swarm of its own")

    def _look_at_ways(self, view: View, probe: Probe) -> None:
        """See which members could be dialed from here, and which could never be met."""
        found, newcomer = self._found, self._newcomer
        is_far = self._is_far()
        places = {
            address: member.id
            for member in found.members
            for address in member.addresses
            if not (is_far and is_near(address))
        }
        silent = probe.unreached(places, self._timeout_s)
        # With keys a connection without a word is a line in the log there, which is due by then.
        reached = reach_all(silent, self._timeout_s)
        dialed = {peer for address, peer in places.items() if address not in silent} | {view.id}
        for address, met in reached.items():
            peer = places[address]
            if met.obstacle is None:
                continue
            lead = f"{peer} tells others to dial {bare_address(address)}, and from here {met.why}"
            if peer in dialed:
                advice = "other addresses of it work; leave that one out of its --advertise"
                if peer == view.id:
                    advice = "let it --advertise an address that works from everywhere"
            else:
                advice = "open the port to this machine, or it must be able to dial this one"
            found.note(Cause.ONE_WAY, lead, advice, is_fatal=False)
        outward = [m.id for m in found.members if m.id not in places.values() and m.id != view.id]
        self._look_at_own_address(is_far=is_far)
        if outward and newcomer.only_dials(is_far=is_far):
            named = ", ".join(outward[:_NAMED_MAX]) + " and more" * (len(outward) > _NAMED_MAX)
            why = f"{named} can only dial out, as this peer would"
            advice = (
                "they exchange with members that can be dialed; "
                "let one of each pair listen (--bind)"
            )
            if newcomer.needs_all_links:
                advice = f"{newcomer.rule} needs every link: let one of each pair listen (--bind)"
            found.note(Cause.DIAL_ONLY, why, advice, is_fatal=newcomer.needs_all_links)

    def _look_at_own_address(self, *, is_far: bool) -> None:
        """See whether the peer there could dial this one, as far as addresses tell."""
        advertised, reached = self._newcomer.advertised, self._reach
        if not (advertised and is_far and reached is not None and _is_global(reached.place)):
            return
        hosts = [split_address(address)[0] for address in advertised]
        if all(_is_private(host) for host in hosts):
            why = f"it is on the internet, and {hosts[0]} is an address of a private network"
            advice = "advertise the router's address and forward a port; else this peer only dials"
            self._found.note(Cause.ONE_WAY, why, advice, is_fatal=False)

    def _is_far(self) -> bool:
        """Whether the peer there is on another machine, as far as its address says."""
        if self._reach is not None:
            return not self._reach.is_here
        return not is_loopback(self._place)

    def _look_at_memory(self, view: View) -> None:
        found, own, theirs = self._found, host_id(), view.own.host
        found.transport = "shared memory" if own and own == theirs else "TCP"
        if not self._newcomer.shares_memory:
            found.transport = "TCP"
        elif not self._is_far() and found.transport == "TCP":
            why = "it is on this machine, and its memory cannot be read from here"
            advice = "run both as one user, in one container"
            if not own:
                why = "processes here cannot read each other's memory"
                advice = "allow memfd_create, and /proc/PID/fd of processes of the same user"
            elif not theirs:
                why = "it is on this machine, and does not share its memory"
                advice = "start it without --no-shared-memory"
            found.note(Cause.MEMORY, why, f"{advice}: models go by TCP meanwhile", is_fatal=False)

    def _look_at_files(self) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        needed = _FILES_PER_NEIGHBOR * len(self._found.members)
        if limit != resource.RLIM_INFINITY and needed > limit:
            why = f"{len(self._found.members)} members may need {needed} files, and {limit} may"
            advice = "raise the limit (ulimit -Hn), or use a topology with fewer neighbors"
            self._found.note(Cause.FILES, f"{why} be open", advice, is_fatal=False)


def _is_private(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False  # a name, which may stand for anything


def _is_global(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return False


def check_listening(binds: Sequence[str], advertised: Sequence[str]) -> list[Finding]:
    """See whether a peer could listen where it is to, and be found where it says that it is.

    Args:
        binds: In the inner form; port ``*`` is the system's choice.
        advertised: Likewise, of what others are told to dial.

    Returns:
        What is wrong; that a port is forwarded can only be seen from another machine.
    """
    findings = []
    with ExitStack() as stack:
        for address in binds:
            try:
                stack.enter_context(_listening(address))
            except OSError as error:
                # What Python adds to it says the address again; resolvers have negative numbers.
                code = error.errno or 0
                told = os.strerror(code) if code > 0 else "its name does not resolve"
                why = f"cannot listen at {bare_address(address)} here ({told})"
                advice = bind_advice(address, error.errno)
                findings.append(Finding(cause=Cause.LISTEN, why=why, advice=advice))
        for address, met in reach_all(advertised, _ADVERTISED_S).items():
            why = ""
            if is_near(address):
                why = "other machines find themselves there"
            elif met.obstacle is not None:
                why = f"from here, {met.why}"
            if why:
                advice = (
                    "name one that leads here from there; a router may not lead its own address "
                    "back, so try from another machine"
                )
                told = f"others would be told to dial {bare_address(address)}: {why}"
                findings.append(
                    Finding(cause=Cause.LISTEN, why=told, advice=advice, is_fatal=False)
                )
    return findings


def _listening(address: str) -> socket.socket:
    host, port = split_address(address)
    host = "0.0.0.0" if host == "*" else host
    # As ZeroMQ binds: beside connections of a peer before that are not over yet.
    listener = socket.create_server(
        (host, 0 if port == "*" else int(port)),
        family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
    )
    return listener
