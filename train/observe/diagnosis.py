"""Find out why a peer on this machine could not join at an address, and what to do about it.

Peers are asked what any stranger may ask: they answer, and forget who asked. No weight moves.
"""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ...gossip import RumorError
from ...gossip.config import ProtocolConfig
from ...gossip.errors import DecodeError, IncompatiblePeer
from ...gossip.transport.addresses import bind_advice, parse_address, split_address
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.wire.messages import Member, Phase
from ...gossip.wire.schema import Schema
from .probe import LinkProbe, Probe, View, bare_address
from .reach import NotReached, mechanism_at

__all__ = ["Diagnosis", "Finding", "Newcomer", "check_listening", "described", "diagnose"]

_DAY_MS: Final = 86_400_000
_NAMED_MAX: Final = 4

_ADVICE: Final = {
    "name": "correct the name, or give the machine's IP address",
    "closed": "start the peer there, correct the port, or let it listen with "
    "--bind tcp://0.0.0.0:PORT, not at 127.0.0.1",
    "silent": "check that the machine is up, and open the port in the firewalls between",
    "unreachable": "check the route, and the firewalls that may refuse",
    "foreign": "correct the port: another program uses it",
    "version": "install the same version of rumor on all machines",
    "model": "give the same task and options here as there",
    "clock": "synchronize the clocks of both machines",
    "rule": "start all of its peers together (--founders), or use a rule such as gosgd",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a peer cannot join.

    Args:
        cause: One word for it, see the table in docs/how-to/join-trouble.md.
        why: A sentence.
        advice: What to do.
    """

    cause: str
    why: str
    advice: str

    def __str__(self) -> str:
        return f"{self.why}; {self.advice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """The peer that would join, as far as it is known."""

    schema: Schema | None = None
    """Schema of its model; None to compare no model."""
    rule: str = ""
    fixed_members: bool = False
    """Whether its rule lets nobody join once training has begun."""
    keyring: Keyring | None = None
    findings: tuple[Finding, ...] = ()
    """What is wrong with it wherever it joins."""


@dataclass(slots=True, kw_only=True)
class Diagnosis:
    """What was found at one address."""

    address: str
    """``host:port``."""
    findings: list[Finding] = field(default_factory=list)
    peer: str = ""
    """Id of the peer that answers there; empty if none does."""
    swarm: str = ""
    """Hash of its swarm's first model, hexadecimal; empty if it belongs to none yet."""
    model: str = ""
    """What is trained there, in words."""
    link: LinkProbe | None = None
    members: tuple[Member, ...] = ()
    """Members of the swarm: those that have joined and not left."""

    @property
    def can_join(self) -> bool:
        """Whether nothing keeps the newcomer out."""
        return not self.findings

    def note(self, cause: str, why: str, advice: str = "") -> None:
        """Add a finding."""
        self.findings.append(Finding(cause, why, advice or _ADVICE[cause]))


def diagnose(
    address: str,
    newcomer: Newcomer,
    *,
    timeout_s: float = 5.0,
    bytes_max: int = 4 << 20,
    config: ProtocolConfig | None = None,
) -> Diagnosis:
    """Find out what a newcomer would meet at an address.

    Args:
        address: Address of any member.
        newcomer: The peer that would join.
        timeout_s: How long to wait for one answer, seconds.
        bytes_max: How much may be sent to measure the bandwidth.
        config: Sizes and times of the swarm.

    Raises:
        ConfigError: The address is malformed.
    """
    place = parse_address(address)
    found = Diagnosis(address=bare_address(place), findings=[*newcomer.findings])
    # A peer with keys logs a warning for each connection that ends before its handshake.
    if newcomer.keyring is None and not _is_reached(found, place, newcomer, timeout_s):
        return found
    try:
        with Probe(timeout_s=timeout_s, keyring=newcomer.keyring) as probe:
            found.link = probe.sound(place, bytes_max=bytes_max)
            schema = probe.schema(place)
            found.model = described(schema)
            difference = newcomer.schema and newcomer.schema.difference(schema)
            if difference:
                found.note("model", f"it trains another model: {difference}")
            if not probe.believes(place, int(time.time() * 1000)):
                why = "its clock is more than a day behind this one, so it does not believe that "
                found.note("clock", why + "a peer starts now")
            _look_at(found, probe.view(place), newcomer, config or ProtocolConfig())
    except IncompatiblePeer as error:
        found.note("version", str(error).rpartition(": ")[2])
    except DecodeError as error:
        found.note("foreign", f"what answers is no peer: {error}")
    except RumorError as error:
        if newcomer.keyring is None:
            why = "it speaks ZeroMQ and does not answer: another program, or a peer that is stopped"
            found.note("foreign", why, "look what runs there")
        elif _is_reached(found, place, newcomer, timeout_s):
            told = str(error).rpartition("answer: ")[2]
            why = f"it {told}" if told.startswith(("has ", "refuses ")) else f"no answer: {told}"
            advice = "get the owner's newest roster, and ask the owner to put this key in it"
            found.note("keys", why, f"version {newcomer.keyring.roster.version} is here: {advice}")
    return found


def _is_reached(found: Diagnosis, place: str, newcomer: Newcomer, timeout_s: float) -> bool:
    """Whether a peer listens there, with keys or without as the newcomer."""
    try:
        mechanism = mechanism_at(place, timeout_s)
    except NotReached as error:
        found.note(error.cause, str(error))
        return False
    if mechanism == "CURVE" and newcomer.keyring is None:
        advice = "give --key and --roster: `rumor keygen` makes a key, the owner lets it in"
        found.note("keys", "its swarm has keys, and this peer would have none", advice)
    elif mechanism == "NULL" and newcomer.keyring is not None:
        advice = "leave out --key and --roster, or give them to all its peers"
        found.note("keys", "it has no keys, and this peer would have some", advice)
    else:
        return True
    return False


def _look_at(found: Diagnosis, view: View, newcomer: Newcomer, config: ProtocolConfig) -> None:
    """Note what the peer there says of itself and its swarm."""
    found.peer, found.swarm = view.id, view.swarm.hex()
    found.members = tuple(m for m in view.members if Phase.JOINING < m.phase < Phase.LEFT)
    ahead_ms, latest = max((m.incarnation - time.time() * 1000, m.id) for m in view.members)
    if ahead_ms > config.incarnation_ahead_max:
        found.note("clock", f"{latest} began {ahead_ms / _DAY_MS:.1f} days in the future")
    phases = {member.phase for member in found.members}
    if newcomer.fixed_members and Phase.TRAINING in phases:
        found.note("rule", f"{newcomer.rule} lets nobody join a swarm that has begun")
    if phases and Phase.TRAINING not in phases:
        why = "its swarm is finishing: nobody there takes steps any more"
        found.note("finishing", why, "start another one, or resume from its checkpoints")
    elif view.own.phase > Phase.FINISHED:
        others = [m for m in found.members if m.phase is Phase.TRAINING and m.addresses]
        where = ", ".join(bare_address(m.addresses[0]) for m in others[:_NAMED_MAX])
        found.note("finishing", f"{view.id} is about to leave", f"join {where or 'another member'}")


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


def check_listening(binds: Sequence[str]) -> list[Finding]:
    """Check that a peer could listen at some addresses.

    Args:
        binds: In the inner form; with port ``*`` the system chooses one.
    """
    findings = []
    for address in binds:
        host, port = split_address(address)
        host = "0.0.0.0" if host == "*" else host
        try:
            # As ZeroMQ binds: connections of an earlier peer may not be over yet.
            socket.create_server(
                (host, 0 if port == "*" else int(port)),
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
            ).close()
        except OSError as error:
            # Python adds the address to the text; resolvers have negative numbers.
            code = error.errno or 0
            told = os.strerror(code) if code > 0 else "its name does not resolve"
            why = f"cannot listen at {bare_address(address)} here ({told})"
            findings.append(Finding("listen", why, bind_advice(address, error.errno)))
    return findings
