"""What became of faults: who noticed, how soon, and what was lost with whom."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .fleet_faults import Troubles
from .plan import Traffic
from .sightings import Arrival, Crash, Healing

__all__ = ["Aftermath", "aftermath"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What a swarm made of its faults. Times are None where that never came."""

    crashes: tuple[Crash, ...]
    arrivals: tuple[Arrival, ...]
    healings: tuple[Healing, ...]
    stranded: tuple[int, ...]
    """Workers that looked for a swarm, or stood still, when the others had ended."""
    membership_bytes_s: float
    """Of messages about who lives, for each worker and second that it ran."""

    def figures(self) -> dict[str, Any]:
        """In numbers, for a summary: counts, and seconds."""
        lasting = [crash for crash in self.crashes if not crash.over]
        newcomers = [arrival for arrival in self.arrivals if not arrival.again]
        returned = [arrival for arrival in self.arrivals if arrival.again]
        return {
            "crashes": len(self.crashes),
            "restarts": len(returned),
            "joins": len(newcomers),
            "detect_s_first": _median([crash.first_s for crash in self.crashes]),
            "detect_s_last": _most([crash.last_s for crash in self.crashes]),
            "undetected": sum(crash.last_s is None for crash in lasting),
            **_of_arrivals("join", newcomers),
            **_of_arrivals("restart", returned),
            "heal_s": _most([healing.took_s for healing in self.healings]),
            "unhealed": sum(healing.took_s is None for healing in self.healings),
            "membership_bytes_s": self.membership_bytes_s,
        }


def aftermath(troubles: Troubles, traffic: Traffic) -> Aftermath:
    """Draw up what became of the faults of a fleet that has come to its end."""
    sightings, lived_s = troubles.sightings, troubles.lived_s()
    return Aftermath(
        crashes=tuple(sightings.crashes),
        arrivals=tuple(sightings.arrivals),
        healings=tuple(sightings.healings),
        stranded=troubles.stranded,
        membership_bytes_s=traffic.membership_bytes / lived_s if lived_s else 0.0,
    )


def _of_arrivals(word: str, arrivals: Sequence[Arrival]) -> dict[str, Any]:
    return {
        f"{word}_s_median": _median([arrival.admitted_s for arrival in arrivals]),
        f"{word}_s_most": _most([arrival.admitted_s for arrival in arrivals]),
        f"{word}_known_s": _most([arrival.known_s for arrival in arrivals]),
        f"{word}s_failed": sum(arrival.admitted_s is None for arrival in arrivals),
    }


def _median(times_s: Sequence[float | None]) -> float | None:
    """Of those that came."""
    found = [time_s for time_s in times_s if time_s is not None]
    return median(found) if found else None


def _most(times_s: Sequence[float | None]) -> float | None:
    """Of those that came."""
    return max((time_s for time_s in times_s if time_s is not None), default=None)
