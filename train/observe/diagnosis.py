"""Diagnose why a peer on this machine could not join at an address, and suggest a remedy."""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ...gossip import RumorError
from ...gossip.errors import DecodeError, IncompatiblePeer
from ...gossip.transport.addresses import parse_address, split_address
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.types import INCARNATION_AHEAD_MS_MAX
from ...gossip.wire.messages import Member, Phase
from ...gossip.wire.schema import Schema
from ..runtime.search import bare_address
from .probe import LinkProbe, Probe

__all__ = ["Diagnosis", "Finding", "described", "diagnose"]

_FOREIGN: Final = "correct the port, or find out what listens there"

# The opening of a ZMTP greeting (RFC 23): a signature of ten bytes and the version. The rest of
# the 64 bytes begins with a minor version and the name of the security mechanism.
_OPENING: Final = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03"
_MECHANISM: Final = slice(12, 32)


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a peer cannot join."""

    cause: str
    """One word, listed in docs/how-to/join-trouble.md."""
    why: str
    advice: str

    def __str__(self) -> str:
        return f"{self.why}; {self.advice}"


@dataclass(slots=True, kw_only=True)
class Diagnosis:
    """The findings at one address."""

    address: str
    """``host:port``."""
    findings: list[Finding] = field(default_factory=list)
    peer: str = ""
    """Id of the peer that answers there; empty without an answer."""
    swarm: str = ""
    """Hexadecimal hash of its swarm's first model; empty if it has no swarm yet."""
    model: str = ""
    """Description of the model that is trained there."""
    link: LinkProbe | None = None
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Addresses of the members of the swarm that have joined and not left, by id."""

    @property
    def can_join(self) -> bool:
        """True if nothing keeps the newcomer out."""
        return not self.findings


def diagnose(
    address: str,
    *,
    schema: Schema | None = None,
    fixed_rule: str = "",
    keyring: Keyring | None = None,
    timeout_s: float = 5.0,
    bytes_max: int = 4 << 20,
) -> Diagnosis:
    """Check what would keep a newcomer from joining at the address of any member.

    Args:
        schema: Schema of its model; None to skip that comparison.
        fixed_rule: Name of its rule, if that lets no peer join once training has begun.
        bytes_max: Most bytes to send when measuring the bandwidth.

    Raises:
        ConfigError: The address is malformed.
    """
    place = parse_address(address)
    found = Diagnosis(address=bare_address(place))
    # A peer with keys logs a warning for each connection that ends before its handshake.
    if keyring is None and (obstacle := _obstacle(place, keyring, timeout_s)):
        found.findings.append(obstacle)
        return found
    try:
        with Probe(place, timeout_s=timeout_s, keyring=keyring) as probe:
            found.link = probe.sound(bytes_max=bytes_max)
            theirs = probe.schema()
            found.model = described(theirs)
            if difference := schema and schema.difference(theirs):
                why = f"it trains another model: {difference}"
                advice = "give the same task and options here as there"
                found.findings.append(Finding("model", why, advice))
            answer, hello = probe.hello(theirs)
        found.peer, found.swarm = answer.source, answer.swarm.hex()
        inside = [m for m in hello.members if Phase.JOINING < m.phase < Phase.LEFT]
        found.members = {member.id: member.addresses for member in inside}
        found.findings.extend(_obstacles_inside(hello.members, fixed_rule))
    except RumorError as error:
        found.findings.append(_unanswered(error, place, keyring, timeout_s))
    return found


def _unanswered(
    error: RumorError, place: str, keyring: Keyring | None, timeout_s: float
) -> Finding:
    """Say why a question got no answer, or none that a peer of this version gives."""
    if isinstance(error, IncompatiblePeer):
        advice = "install the same version of rumor on all machines"
        return Finding("version", str(error), advice)
    if isinstance(error, DecodeError):
        return Finding("foreign", f"what answers is not a peer: {error}", _FOREIGN)
    if keyring is None:
        why = "it speaks ZeroMQ and does not answer: another program, or a peer that is stopped"
        return Finding("foreign", why, _FOREIGN)
    if obstacle := _obstacle(place, keyring, timeout_s):
        return obstacle
    told = str(error).rpartition("answer: ")[2]
    why = f"it {told}" if told.startswith(("has ", "refuses ")) else f"no answer: {told}"
    advice = "get the owner's newest roster, and ask the owner to put this key in it"
    return Finding("keys", why, f"version {keyring.roster.version} is here: {advice}")


def _obstacles_inside(known: Sequence[Member], fixed_rule: str) -> Iterator[Finding]:
    """Yield what keeps a newcomer out by the member table of the peer there, itself first."""
    # An incarnation's number is its start time, in milliseconds of Unix time.
    ahead_ms, latest = max((m.incarnation - time.time() * 1000, m.id) for m in known)
    if ahead_ms > INCARNATION_AHEAD_MS_MAX:
        why = f"{latest} began {ahead_ms / 86_400_000:.1f} days in the future"
        yield Finding("clock", why, "synchronize the clocks of both machines")
    is_inside = any(Phase.JOINING < member.phase < Phase.LEFT for member in known)
    training = [member for member in known if member.phase is Phase.TRAINING]
    if fixed_rule and training:
        why = f"{fixed_rule} admits no new peers to a swarm that has begun"
        advice = "start all of its peers together (--founders), or use a rule such as gosgd"
        yield Finding("rule", why, advice)
    if is_inside and not training:
        why = "its swarm is finishing: no peer there takes steps any more"
        yield Finding("finishing", why, "start another one, or resume from its checkpoints")
    elif known[0].phase > Phase.FINISHED:
        where = ", ".join(bare_address(m.addresses[0]) for m in training[:4] if m.addresses)
        why = f"{known[0].id} is about to leave"
        yield Finding("finishing", why, f"join {where or 'another member'}")


def _obstacle(place: str, keyring: Keyring | None, timeout_s: float) -> Finding | None:
    """Return what keeps the newcomer, with or without keys, from connecting to a peer there."""
    host, port = split_address(place)
    try:
        with socket.create_connection((host, int(port)), timeout_s) as connection:
            mechanism = _mechanism(connection)
    except (socket.gaierror, UnicodeError) as error:
        why = f"the name {host} does not resolve ({getattr(error, 'strerror', error)})"
        return Finding("name", why, "correct the name, or give the machine's IP address")
    except TimeoutError:
        why = f"nothing comes back from {host} within {timeout_s:g} s"
        advice = "check that the machine is up, and open the port in the firewalls between"
        return Finding("silent", why, advice)
    except ConnectionRefusedError:
        why = f"nothing listens at port {port} of {host} (connection refused)"
        advice = (
            "start the peer there, correct the port, or let it listen with "
            "--bind tcp://0.0.0.0:PORT, not at 127.0.0.1"
        )
        return Finding("closed", why, advice)
    except OSError as error:
        why = f"{host} cannot be reached from this machine ({error.strerror or error})"
        return Finding("unreachable", why, "check the route, and the firewalls that may refuse")
    if not mechanism:
        why = "what listens there is not a peer, or one that is stopped"
        return Finding("foreign", why, _FOREIGN)
    if mechanism == "CURVE" and keyring is None:
        advice = "give --key and --roster: `rumor keys make` makes a key, the owner lets it in"
        return Finding("keys", "its swarm has keys, and this peer would have none", advice)
    if mechanism != "CURVE" and keyring is not None:
        advice = "leave out --key and --roster, or give them to all its peers"
        return Finding("keys", "it has no keys, and this peer would have some", advice)
    return None


def _mechanism(connection: socket.socket) -> str:
    """Return ``NULL`` for a peer without keys, ``CURVE`` for one with keys, else nothing."""
    told = b""
    with suppress(OSError):
        connection.sendall(_OPENING)
        while len(told) < _MECHANISM.stop and (more := connection.recv(64)):
            told += more
    if told[:1] + told[9:10] != b"\xff\x7f":
        return ""
    return told[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")


def described(schema: Schema) -> str:
    """Describe a model from its schema.

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
