"""The pace of a live run's peers, and what they were told, as a simulation of them needs it."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from ..gossip.address import is_loopback
from ..gossip.errors import ConfigError
from ..gossip.rule import demands_of
from ..gossip.rules import read_rule
from .calibration import Calibration, PeerPace
from .live_run import LivePeer, LiveRun
from .network import PRESETS, NetworkConfig

__all__ = ["calibrate"]

# Options of `rumor peer` that are called as settings of a simulation are.
_ALIKE: Final = (
    *("task", "steps", "total_steps", "lr", "batch_size", "partition", "seed", "topology", "rule"),
    *("p", "emission", "wire", "shards", "shards_per_push", "shard_order", "exact", "timing"),
    "eval_every",
)

# What a simulation has no word for, where it is not as said here.
_UNSIMULATED: Final = {
    "lr_schedule": ("constant", "a simulation keeps its learning rate"),
    "mixing": ("step", "a simulation mixes between two steps, at once"),
}

Row = Mapping[str, Any]


def calibrate(
    run: LiveRun, *, network: NetworkConfig | None = None, push_mbit: float | None = None
) -> Calibration:
    """Draw up what a simulation needs to go as a live run went.

    A step lasts from the end of the one before: evaluations, logs and mixing count. Under a rule
    that waits for others it lasts as long as it does without them, and at least ``step_s_min``.

    Args:
        run: The live run; one that still goes on is as good.
        network: Between the peers, where it was measured.
        push_mbit: What each peer might send, Mbit/s; None for as much as it liked.

    Returns:
        The calibration; its notes say what was left out.

    Raises:
        ConfigError: A peer has not been seen for two steps, or the rule is not known.
    """
    first = run.peers[0].options
    settings = {name: first[name] for name in _ALIKE if first.get(name) is not None}
    if push_mbit is not None:
        settings["push_mbit"] = push_mbit
    rule = read_rule(
        str(first.get("rule", "gosgd")), first.get("p"), first.get("emission", "per-step")
    )
    # Apart from the rule, so that another p or emission can be typed in their place.
    settings |= {name: value for name, value in rule.short_forms().items() if value is not None}
    waits = demands_of(rule.make()).fixed_members
    between, notes = (network, []) if network is not None else _network(run)
    return Calibration(
        source=str(run.folder),
        peers=tuple(_pace(peer, waits=waits) for peer in run.peers),
        network=between,
        settings=settings,
        notes=(*notes, *_notes(run)),
    )


def _pace(peer: LivePeer, *, waits: bool) -> PeerPace:
    spans = [span for rows in peer.lives for span in _spans(rows)]
    steps, seconds = sum(n for n, _, _ in spans), math.fsum(s for _, s, _ in spans)
    if not steps:
        raise ConfigError(f"{peer.id} has not been seen for two steps: let it train for longer")
    if not waits:
        return PeerPace(id=peer.id, step_s=seconds / steps, step_s_cv=_cv(spans), steps=steps)
    known = [(n, row["own_s"], row) for n, _, row in spans if row.get("own_s") is not None]
    if not known:
        raise ConfigError(
            f"the rows of {peer.id} do not say how long it waited for others: they are of an "
            "older rumor"
        )
    own_s = math.fsum(n * mean for n, mean, _ in known) / sum(n for n, _, _ in known)
    least_s = float(peer.options.get("step_s_min") or 0.0)
    # A step that sleeps sleeps less for having waited, so that what it takes alone is unknown.
    cv = _cv(spans, "own_s") if own_s >= least_s else 0.0
    return PeerPace(id=peer.id, step_s=max(own_s, least_s), step_s_cv=cv, steps=steps)


def _spans(rows: Sequence[Row]) -> list[tuple[int, float, Row]]:
    """Steps, seconds and the row at the end of each stretch between two rows.

    Where a peer went back to a checkpoint, the stretch is left out; so is the first step, which
    takes longer than any other.
    """
    found = []
    for before, row in pairwise(rows):
        steps, seconds = row["step"] - before["step"], row["time_s"] - before["time_s"]
        if steps > 0 and seconds > 0:
            found.append((steps, seconds, row))
    return found


def _cv(spans: Sequence[tuple[int, float, Row]], name: str = "step_s") -> float:
    """Standard deviation over mean of single steps, as far as the rows say it."""
    known = [(n, row[name], row.get(f"{name}_sd")) for n, _, row in spans if row.get(name)]
    total = sum(n for n, _, _ in known)
    if not total:
        return 0.0
    mean = math.fsum(n * each for n, each, _ in known) / total
    square = math.fsum(n * ((sd or 0.0) ** 2 + (each - mean) ** 2) for n, each, sd in known) / total
    return math.sqrt(square) / mean


def _network(run: LiveRun) -> tuple[NetworkConfig, list[str]]:
    """What can be said of the network without having measured it."""
    addresses = [peer.address for peer in run.peers]
    if all(address is None or is_loopback(address) for address in addresses):
        return PRESETS["ideal"], ["all peers ran on one machine: messages take no time"]
    words = "the network was not measured: lan is a guess (rumor calibrate --join measures it)"
    return PRESETS["lan"], [words]


def _notes(run: LiveRun) -> list[str]:
    first, found = run.peers[0].options, []
    for name, (usual, words) in _UNSIMULATED.items():
        if first.get(name, usual) != usual:
            found.append(f"{name} was {first[name]}: {words}")
    for name in _ALIKE:
        if any(peer.options.get(name) != first.get(name) for peer in run.peers):
            found.append(f"{name} was not the same for all peers: that of {run.peers[0].id} is")
    count = first.get("count", 1)
    if first.get("partition", "shared") != "shared" and count != len(run.peers):
        found.append(f"the data was cut into {count} parts, and {len(run.peers)} peers were seen")
    if run.summary is not None and run.summary.get("faults"):
        found.append("faults were done to the run: give simulate the same --faults")
    return found
