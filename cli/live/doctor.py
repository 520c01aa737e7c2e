"""``rumor doctor``: why a peer here could not join there."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ...gossip.errors import ConfigError
from ..commands.peer import resumed_options
from ..errors import FAILED, printable, understanding
from ..reports.console import print_json
from ..settings.options import GOSSIP, Json, Source, given, options_of

if TYPE_CHECKING:
    from ...gossip.wire.schema import Schema
    from ...train.observe.diagnosis import Diagnosis, Newcomer

__all__ = ["DoctorConfig", "doctor"]

_COMPARED: Final = ("task", "rule", "shards", "frozen_may_differ")
"""With one of these, the model is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorConfig:
    """The peer that would join, as `rumor peer` is told it."""

    task: str | None = None
    """What it would train, as of `rumor peer`: then the model is compared; not compared unless
    given."""

    rule: str = "gosgd"
    """Its rule, as of `rumor peer`."""

    shards: int = 1
    """Into how many pieces it would cut the vector."""

    frozen_may_differ: bool = False
    """Whether frozen parameters would not be compared."""

    resume: Path | None = None
    """The folder of a peer that is to come back: its options, its model and the swarm of its
    checkpoint; of a script's own peer, the swarm."""

    trust: bool = False
    """With ``resume``: import the task or rule of somebody's own that the folder names."""

    bind: tuple[str, ...] = ()
    """Where it would listen. May be given several times."""

    advertise: tuple[str, ...] = ()
    """Address that others would be told to dial. May be given several times."""

    dial_only: bool = False
    """It would not listen at all."""

    no_shared_memory: bool = False
    """It would exchange through sockets on one machine, too."""

    key: Path | None = None
    """This machine's key, where the swarm has keys; with ``roster``."""

    roster: Path | None = None
    """Its roster; one that members know in a newer version is brought up to date."""

    timeout_s: float = 5.0
    """How long to wait for one answer."""

    probe_mb: float = 4.0
    """Most that is sent to measure how fast the way is, in millions of bytes."""

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s <= 600:
            raise ConfigError(f"--timeout-s is {self.timeout_s:g}: it must be above 0, at most 600")
        if not 0.1 <= self.probe_mb <= 1000:
            raise ConfigError(f"--probe-mb is {self.probe_mb:g}: it must be from 0.1 to 1000")


@options_of(
    Source(
        DoctorConfig,
        GOSSIP,
        own=("resume", "trust", "shards", "task"),
    )
)
def doctor(
    ctx: typer.Context,
    addresses: Annotated[
        list[str], typer.Argument(metavar="HOST:PORT...", help="Members that might be joined.")
    ],
    *,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Say why a peer on this machine could not join at an address, and what to do.

    Peers are asked what any stranger may ask. Nothing of their models or weights changes hands, and
    no member remembers who asked. Give the options of `rumor peer` to have them checked, too.

    `rumor doctor node-a:7700 --task digits --bind 0.0.0.0:7700`

    Exit status: 0 if a peer could join at each address; 1 if not; 2 for wrong arguments.
    """
    typed = given(ctx)
    config = DoctorConfig(**settings)
    if config.resume is None:
        found = _diagnosed(addresses, config, _newcomer(config, typed))
    else:
        with understanding(config.resume):
            # A script of somebody's own leaves checkpoints, and no options.
            swarm = _swarm_of(config.resume)
            if not swarm or (config.resume / "options.json").exists():
                config = _resumed(config, settings, typed)
                typed |= {"task"}
            newcomer = _newcomer(config, typed, swarm)
        found = _diagnosed(addresses, config, newcomer)
    if as_json:
        print_json({"addresses": [_as_json(each) for each in found]})
    else:
        for each in found:
            print("\n".join(map(printable, _lines(each))))
    if not all(each.can_join for each in found):
        raise typer.Exit(FAILED)


def _resumed(config: DoctorConfig, settings: Mapping[str, Any], typed: set[str]) -> DoctorConfig:
    """The peer of a folder as it would come back, with what was typed changed."""
    folder = config.resume
    assert folder is not None
    told = {**settings, "out": None}
    kept = resumed_options(told, typed & {*settings})
    values: dict[str, Any] = {name: kept[name] for name in DoctorConfig.__slots__ if name in kept}
    several = {name: tuple(values[name] or ()) for name in ("bind", "advertise")}
    return DoctorConfig(**values | several)


def _swarm_of(folder: Path) -> bytes:
    """The swarm of a peer's last checkpoint; empty where it has left none."""
    from ...train.config import CHECKPOINTS
    from ...train.storage.checkpoint import CheckpointFolder

    last = CheckpointFolder(folder / CHECKPOINTS).latest()
    return b"" if last is None else bytes.fromhex(last.head["swarm"])


def _newcomer(config: DoctorConfig, typed: set[str], swarm: bytes = b"") -> "Newcomer":
    """Who would join.

    Raises:
        ConfigError: A setting is out of range, or the roster here does not let the key in.
    """
    from ...gossip.protocol.rule import requirements_of
    from ...gossip.rules.registry import make_rule
    from ...gossip.transport.addresses import parse_address
    from ...gossip.transport.keys.keyring import read_keyring
    from ...train.observe.diagnosis import Newcomer, check_listening

    rule = make_rule(config.rule)
    binds = () if config.dial_only else config.bind or ("tcp://127.0.0.1:*",)
    binds = tuple(parse_address(each, any_port=True) for each in binds)
    advertised = tuple(map(parse_address, config.advertise))
    requirements = requirements_of(rule)
    if config.task is None and {*_COMPARED} & typed - {"rule"}:
        raise ConfigError("--shards and --frozen-may-differ are of a model: give --task, too")
    return Newcomer(
        schema=None if config.task is None else _schema(config),
        rule=rule.name,
        fixed_members="rule" in typed and requirements.fixed_members,
        needs_all_links=requirements.waits,
        swarm=swarm,
        binds=binds,
        advertised=advertised,
        shares_memory=not config.no_shared_memory,
        keyring=read_keyring(config.key, config.roster),
        findings=tuple(check_listening(binds, advertised)),
    )


def _schema(config: DoctorConfig) -> "Schema":
    """What the model would look like to other peers.

    Raises:
        ConfigError: There is no such task, or the rule cannot cut it so.
    """
    from ...gossip.protocol.rule import requirements_of
    from ...train.config import PeerConfig
    from ...train.loop.model_check import ModelCheck
    from ...train.tasks.registry import load_task
    from ...train.tensors.vector import Vector

    assert config.task is not None
    peer = PeerConfig(rule=config.rule, shards=config.shards)
    rule = peer.make_rule()
    vector = Vector(
        load_task(config.task, seed=0).model(),
        rule.registers,
        shards=peer.shards,
        scattered=requirements_of(rule).scattered,
        carries_extra_state=True,
        keeps_anchor=False,
    )
    ModelCheck(vector, peer.protocol.wire, config.frozen_may_differ).begin()
    return vector.schema


def _diagnosed(
    addresses: list[str], config: DoctorConfig, newcomer: "Newcomer"
) -> "list[Diagnosis]":
    from ...gossip.transport.addresses import allow_more_files, parse_address
    from ...train.observe.diagnosis import Cause, diagnose

    allow_more_files()
    places = [parse_address(each) for each in addresses]
    found = [
        diagnose(
            place,
            newcomer,
            timeout_s=config.timeout_s,
            bytes_max=int(config.probe_mb * 1e6),
        )
        for place in places
    ]
    swarms = {each.swarm: each.address for each in reversed(found) if each.swarm}
    for each in found:
        if each.swarm and each.swarm != found[0].swarm and found[0].swarm:
            other = swarms[found[0].swarm]
            why = f"it belongs to swarm {each.swarm[:8]}, and {other} to {found[0].swarm[:8]}"
            each.note(Cause.SWARM, why, "a peer joins one of them: give its addresses alone")
    return found


def _lines(found: "Diagnosis") -> list[str]:
    """One line, and one for each thing that only costs something."""
    fatal = [str(each) for each in found.findings if each.is_fatal]
    if fatal:
        lines = [f"{found.address}: cannot join: {fatal[0]}", *(f"  also: {f}" for f in fatal[1:])]
    else:
        lines = [f"{found.address}: could join{_what_works(found)}"]
    lines += [f"  but: {each}" for each in found.findings if not each.is_fatal]
    if found.model:
        lines.append(f"  model: {found.model}")
    return lines


def _what_works(found: "Diagnosis") -> str:
    link, members = found.link, len(found.members)
    if link is None:
        return ""
    swarm = f"swarm {found.swarm[:8]} of {members}" if found.swarm else "it looks for a swarm"
    return (
        f": {found.peer}, {swarm}; round trip {link.roundtrip_s * 1e3:.2g} ms, "
        f"{link.bytes_s / 1e6:.3g} MB/s, models by {found.transport}"
    )


def _as_json(found: "Diagnosis") -> dict[str, Any]:
    return {
        "address": found.address,
        "can_join": found.can_join,
        "findings": [
            {
                "cause": str(each.cause),
                "why": each.why,
                "advice": each.advice,
                "is_fatal": each.is_fatal,
            }
            for each in found.findings
        ],
        "peer": found.peer or None,
        "swarm": found.swarm or None,
        "model": found.model or None,
        "members": [
            {"id": m.id, "phase": m.phase.name.lower(), "addresses": [*m.addresses]}
            for m in found.members
        ],
        "transport": found.transport or None,
        "link": None if found.link is None else asdict(found.link),
    }
