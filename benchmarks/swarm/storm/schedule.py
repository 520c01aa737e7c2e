"""The faults of a storm: drawn so that all who are killed come back, and put off for prediction."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Final

from ....sim.kernel.faults.files import Fault, faults_as_json
from ....sim.kernel.faults.storms import read_storm
from ....train.storage.files import write_json
from .figures import Span, Strikes

__all__ = ["drawn", "kills_in_turn", "put_off", "strikes_on", "write_faults"]

_CALM: Final = 0.1
"""The part of a run, from its end, in which nothing goes wrong any more."""

_KILLS: Final = 4


def drawn(name: str, peers: int, seconds: float, seed: int, scale: float) -> tuple[Fault, ...]:
    """Draw a storm for a run.

    Its last tenth is calm, and a kill so late that its victim would not come back before that is
    left out: what is measured at the end is a whole swarm.

    Args:
        name: Of the storm, or its file.
        peers: How many there are.
        seconds: How long the run is meant to last.
        seed: Of everything random.
        scale: How many times as fast all of it goes.

    Raises:
        ConfigError: There is no such storm, or a number is out of range.
    """
    faults = read_storm(name).draw(peers, (1 - _CALM) * seconds, seed, scale=scale).faults
    return tuple(fault for at, fault in enumerate(faults) if not _is_for_good(faults, at))


def _is_for_good(faults: Sequence[Fault], at: int) -> bool:
    fault, later = faults[at], faults[at + 1 :]
    if fault.kind != "crash":
        return False
    return not any(each.kind == "restart" and each.peer == fault.peer for each in later)


def kills_in_turn(peers: int, seconds: float, down_s: float) -> tuple[Fault, ...]:
    """Kill some peers one after another, so that a calibration sees how long a start takes.

    Args:
        peers: How many there are; the first is spared.
        seconds: How long the run is meant to last.
        down_s: How long each is down, seconds.
    """
    found = []
    for number in range(1, _KILLS + 1):
        at_s = round(number * seconds / (_KILLS + 2), 3)
        peer = 1 + (number - 1) % (peers - 1)
        found.append(Fault(at_s=at_s, kind="crash", peer=peer))
        found.append(Fault(at_s=at_s + down_s, kind="restart", peer=peer, state="kept"))
    return tuple(found)


def strikes_on(faults: Sequence[Fault], peer: str | int) -> Strikes:
    """What a schedule does to the process of one peer, as a launch does it.

    Args:
        faults: In order of time.
        peer: Its name, or its position, as they have it.
    """
    own = [fault for fault in faults if fault.peer == peer]
    cut = [f for f in faults if f.kind == "partition" and any(peer in g for g in f.groups or ())]
    return Strikes(
        kills_s=tuple(fault.at_s for fault in own if fault.kind == "crash"),
        starts_s=tuple(fault.at_s for fault in own if fault.kind == "restart"),
        pauses=_spans(fault for fault in own if fault.kind == "pause"),
        cuts=_spans(cut),
    )


def _spans(faults: Iterable[Fault]) -> tuple[Span, ...]:
    return tuple(
        (fault.at_s, inf if fault.for_s is None else fault.at_s + fault.for_s) for fault in faults
    )


def put_off(faults: Sequence[Fault], start_s: float) -> tuple[Fault, ...]:
    """Let whoever starts again come so much later: a simulated process starts at once.

    One that is killed again before it would have come does not come.

    Args:
        faults: In order of time.
        start_s: What a start takes, seconds.

    Returns:
        The same, in order of time.
    """
    found = []
    for fault in faults:
        if fault.kind == "restart":
            come_s = fault.at_s + start_s
            if any(
                fault.at_s < each.at_s <= come_s
                for each in faults
                if each.kind == "crash" and each.peer == fault.peer
            ):
                continue
            fault = replace(fault, at_s=come_s)
        found.append(fault)
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def write_faults(faults: Sequence[Fault], path: Path) -> Path:
    """Write a schedule where `rumor launch` reads it, and return that.

    Raises:
        OSError: It cannot be written.
    """
    write_json(path, faults_as_json(faults))
    return path
