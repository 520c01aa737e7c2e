"""``rumor doctor``: why a peer here could not join there."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import setting
from ...train.config import PeerConfig, RunConfig
from ..errors import FAILED, printable
from ..reports.console import print_json
from ..settings.options import Json, Source, config_of, options_of

if TYPE_CHECKING:
    from ...gossip.wire.schema import Schema
    from ...train.observe.diagnosis import Diagnosis

__all__ = ["DoctorConfig", "doctor"]


@dataclass(frozen=True, kw_only=True)
class DoctorConfig:
    """The requests of `rumor doctor`."""

    timeout_s: float = setting(5.0, "How long to wait for one answer.", above=0, high=600)


@options_of(
    Source(RunConfig, only=("task",), unset={"task": "models are not compared"}),
    Source(
        PeerConfig, only=("rule", "shards", "key", "roster"), unset={"rule": "it is not checked"}
    ),
    Source(DoctorConfig),
)
def doctor(
    addresses: Annotated[
        list[str],
        typer.Argument(metavar="HOST:PORT", help="Members to join.", show_default=False),
    ],
    *,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Find out why a peer on this machine cannot join, and what to do.

    Peers only answer questions that any stranger may ask. No models or weights are transferred, and
    no member remembers who asked. Give the options of `rumor peer` to have them checked, too.

    `rumor doctor node-a:7700 --task digits`

    Exit status: 0 if a peer could join at each address; 1 if not; 2 for wrong arguments.
    """
    from ...gossip.protocol.rule import requirements_of
    from ...gossip.transport.addresses import parse_address
    from ...train.observe.diagnosis import Finding, diagnose

    config, task = config_of(DoctorConfig, settings), settings["task"]
    if task is None and settings["shards"] != 1:
        raise ConfigError("--shards is of a model: give --task, too")
    names = ("rule", "shards", "key", "roster")
    peer = PeerConfig(**{name: settings[name] for name in names if settings[name] is not None})
    rule = peer.make_rule()
    is_fixed = settings["rule"] is not None and requirements_of(rule).fixed_members
    schema, keyring = None if task is None else _schema(task, peer), peer.keyring()
    # All addresses are checked before the first request.
    places = [parse_address(each) for each in addresses]
    found = [
        diagnose(
            place,
            schema=schema,
            fixed_rule=rule.name if is_fixed else "",
            keyring=keyring,
            timeout_s=config.timeout_s,
        )
        for place in places
    ]
    swarms = [each.swarm for each in found if each.swarm]
    for each in found:
        if each.swarm not in ("", *swarms[:1]):
            advice = f"a peer joins one swarm: give addresses of {swarms[0][:8]} alone"
            each.findings.append(Finding("swarm", f"it belongs to swarm {each.swarm[:8]}", advice))
    if as_json:
        told = [asdict(each) | {"can_join": each.can_join} for each in found]
        print_json({"addresses": told})
    else:
        for each in found:
            print("\n".join(map(printable, _lines(each))))
    if not all(each.can_join for each in found):
        raise typer.Exit(FAILED)


def _schema(task: str, peer: PeerConfig) -> "Schema":
    from ...gossip.protocol.rule import requirements_of
    from ...train.loop.model_check import ModelCheck
    from ...train.tasks.registry import load_task
    from ...train.tensors.vector import Vector

    rule = peer.make_rule()
    vector = Vector(
        load_task(task, seed=0).build(),
        rule.registers,
        shards=peer.shards,
        scattered=requirements_of(rule).scattered,
        carries_extra_state=True,
        keeps_anchor=False,
    )
    ModelCheck(vector).begin()
    return vector.schema


def _lines(found: "Diagnosis") -> list[str]:
    lines = [f"  model: {found.model}"] if found.model else []
    if found.findings:
        first, *others = found.findings
        told = [f"{found.address}: cannot join: {first}", *(f"  also: {f}" for f in others)]
        return told + lines
    link = found.link
    assert link is not None, "a link to a peer that can be joined is measured"
    swarm = f"swarm {found.swarm[:8]} of {len(found.members)}" if found.swarm else ""
    works = f"round trip {link.roundtrip_s * 1e3:.2g} ms, {link.bytes_s / 1e6:.3g} MB/s"
    swarm = swarm or "it looks for a swarm"
    return [f"{found.address}: could join: {found.peer}, {swarm}; {works}", *lines]
