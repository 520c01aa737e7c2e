"""One process that becomes one peer: a scheduler's task, or with addresses in ``RUMOR_JOIN``.

It reads its place from its environment, and then replaces itself by the script, so that signals and
exit status are those of the script.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...gossip.protocol.rule import requirements_of
from ...gossip.specs.parameter import settings_of
from ...train.config import PeerConfig
from ...train.runtime.script.cluster import ClusterTask, take_place
from ..launch.checks import check_settings
from ..launch.config import LaunchConfig, MachinesConfig
from ..launch.folder import variables

__all__ = ["listed_variables", "task_variables"]

# Variables that a launcher gives the peers of one machine.
_OF_LAUNCHER: Final = tuple(
    f"RUMOR_{name}" for name in ("COUNT", "FOUNDERS", "ID", "INDEX", "LOCAL_INDEX", "RENDEZVOUS")
)
# Settings that determine a peer's place in a list, and its name.
_OF_PLACE: Final = ("id", "bind", "advertise", "join", "founders", "key", "roster", "rule")


def task_variables(
    config: LaunchConfig, machines: MachinesConfig, task: ClusterTask, out: Path
) -> dict[str, str]:
    """Return additions to the environment of the task's peer."""
    config = replace(config, peers=task.size)
    check_settings(config, Path(out))
    told = variables(config, out, task.rank, local=task.local_rank)
    placed = task.variables(machines.port)
    rule = config.rule_spec and config.rule_spec.make()
    if rule and requirements_of(rule).fixed_members:
        # Tasks found together, all with the model that the first task leaves in the folder.
        placed = {name: placed[name] for name in placed if name != "RUMOR_FOUNDERS"}
    else:
        del told["RUMOR_RENDEZVOUS"]
    # A topology's file may name its nodes.
    own = {"RUMOR_ID": told["RUMOR_ID"], "RUMOR_RESUME": "1", "PYTHONUNBUFFERED": "1"}
    return told | placed | own


def listed_variables(config: LaunchConfig, out: Path) -> dict[str, str]:
    """Return additions to the environment of a peer with a list of addresses in ``RUMOR_JOIN``."""
    # A topology is checked for the machines that are listed.
    config = replace(config, peers=os.environ["RUMOR_JOIN"].count(",") + 1)
    check_settings(config, out)
    told = variables(config, out, 0)
    told = {name: text for name, text in told.items() if name not in _OF_LAUNCHER}
    known, texts = settings_of(PeerConfig), {**os.environ, **told}
    given = {name: text for name in _OF_PLACE if (text := texts.get(f"RUMOR_{name.upper()}"))}
    before = PeerConfig(**{name: known[name].read_all(text) for name, text in given.items()})
    peer = take_place(before)
    if peer is not before:
        told["RUMOR_BIND"], told["RUMOR_FOUNDERS"] = str(peer.bind), str(peer.founders)
        told["RUMOR_ADVERTISE"] = ",".join(peer.advertise)
    own = out.absolute() / "peers" / (id := peer.named())
    return told | {"RUMOR_ID": id, "RUMOR_OUT": str(own), "PYTHONUNBUFFERED": "1"}
