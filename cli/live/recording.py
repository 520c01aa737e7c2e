"""The view and history of a swarm on a page, within bounds."""

from collections import deque
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from ...train.storage.jsonl import finite

if TYPE_CHECKING:
    from ...train.observe.view import SwarmView

__all__ = ["CUT_OFF", "Recording"]

CUT_OFF: Final = "cut off"
"""The state of a member that answers here, while others suspect it or consider it dead: the path
between them is broken, or it is so slow that they have given up on it."""

# One poll may fall between a restart and the news of it; a partition lasts longer.
_CUT_OFF_POLLS: Final = 3

_Values = list[float | None]

_SAMPLES_MAX: Final = 600
_PEERS_MAX: Final = 256
_CHANGES_MAX: Final = 60
_EVENTS_MAX: Final = 200
_PARTITIONS_MAX: Final = 100


@dataclass(slots=True)
class Recording:
    """The history of one swarm since its first view, in at most 600 samples."""

    _count: int = 0
    """Number of views so far."""
    _stride: int = 1
    """Number of views per sample."""
    _times_s: list[float] = field(default_factory=list)
    _swarm_steps: list[int] = field(default_factory=list)
    _curves: dict[str, tuple[_Values, _Values]] = field(default_factory=dict)
    """Loss and distance of each member at each sample, None if unknown."""
    _lanes: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    _doubted: dict[str, int] = field(default_factory=dict)
    """Number of views in a row in which a member has been cut off."""
    _partitions: deque[dict[str, Any]] = field(
        default_factory=lambda: deque(maxlen=_PARTITIONS_MAX)
    )
    _last: dict[str, Any] = field(default_factory=dict)

    def add(self, view: "SwarmView") -> dict[str, Any]:
        """Add the current view of the swarm, and return the update for a page that has the rest."""
        cut_off = self._cut_off(view)
        states = {p.id: CUT_OFF if p.id in cut_off else p.state for p in view.peers}
        self._change(states, view.time_s)
        sample = self._sample(view) if self._count % self._stride == 0 else None
        self._count += 1
        self._last = {
            "view": self._shown(view, states),
            "lanes": [[id, lane] for id, lane in self._lanes.items()],
        }
        return self._last | {"sample": sample}

    def everything(self) -> dict[str, Any]:
        """Return all data for a new page."""
        return self._last | {
            "curves": {
                "samples_max": _SAMPLES_MAX,
                "times_s": self._times_s,
                "swarm_steps": self._swarm_steps,
                "peers": [[id, *curves] for id, curves in self._curves.items()],
            }
        }

    def _cut_off(self, view: "SwarmView") -> set[str]:
        doubted = {
            p.id
            for p in view.peers
            if p.source == "self" and not p.is_gone and p.suspected_by + p.dead_by > 0
        }
        before = {id for id, count in self._doubted.items() if count >= _CUT_OFF_POLLS}
        self._doubted = {id: self._doubted.get(id, 0) + 1 for id in sorted(doubted)}
        now = {id for id, count in self._doubted.items() if count >= _CUT_OFF_POLLS}
        answering = {p.id for p in view.peers if p.source == "self"}
        # A member that died meanwhile has not been reached again.
        for event, peers in (("cut off", now - before), ("reached again", before - now)):
            if peers := peers & answering:
                self._partitions.append(
                    {"time_s": view.time_s, "event": event, "peers": sorted(peers)}
                )
        return now

    def _change(self, states: dict[str, str], time_s: float) -> None:
        for id in {*self._lanes} - {*states}:
            if self._lanes[id][-1][1]:
                self._lanes[id].append((time_s, ""))
        for id, state in states.items():
            if id not in self._lanes and len(self._lanes) >= _PEERS_MAX:
                continue
            lane = self._lanes.setdefault(id, [])
            if not lane or lane[-1][1] != state:
                lane.append((time_s, state))
                del lane[:-_CHANGES_MAX]

    def _sample(self, view: "SwarmView") -> dict[str, Any]:
        if len(self._times_s) >= _SAMPLES_MAX:
            # Half of the samples are left, and from now on half as many are added.
            self._stride *= 2
            del self._times_s[1::2], self._swarm_steps[1::2]
            for curve in chain(*self._curves.values()):
                del curve[1::2]
        length = len(self._times_s)
        self._times_s.append(view.time_s)
        self._swarm_steps.append(view.swarm_step)
        # The figures of a peer's last answer are out of date.
        told = {
            p.id: (finite(p.figures.get("loss")), finite(p.distance))
            for p in view.peers
            if p.source == "self"
        }
        for id in told:
            if id not in self._curves and len(self._curves) < _PEERS_MAX:
                self._curves[id] = [None] * length, [None] * length
        for id, curves in self._curves.items():
            for curve, value in zip(curves, told.get(id, (None, None)), strict=True):
                curve.append(value)
        figures = [[id, *values] for id, values in told.items() if id in self._curves]
        return {"time_s": view.time_s, "swarm_step": view.swarm_step, "figures": figures}

    def _shown(self, view: "SwarmView", states: dict[str, str]) -> dict[str, Any]:
        shown = replace(view, links=(), events=()).to_json()
        for peer in shown["peers"]:
            peer["state"] = states[peer["id"]]
        shown["dead"] = sum(peer.state == "dead" for peer in view.peers)
        shown["cut_off"] = sum(state == CUT_OFF for state in states.values())
        shown["links"] = [
            [
                *(link.source, told.peer, finite(link.bytes_out_s), finite(link.bytes_in_s)),
                told.shares_memory,
                *(told.pushes, told.refusals, told.mixed, told.in_flight),
                told.roundtrip_s or None,
            ]
            for link in view.links
            for told in [link.status]
        ]
        # Members noticing one another adds nothing to their joining.
        told = [asdict(each) for each in view.events if each.event != "met"]
        told += [each | {"peer": each["peers"][0]} for each in self._partitions]
        shown["events"] = sorted(told, key=lambda each: each["time_s"])[-_EVENTS_MAX:]
        return shown
