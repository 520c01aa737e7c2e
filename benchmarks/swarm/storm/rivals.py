"""torchft's DiLoCo and hivemind's Optimizer around one kill, beside those of our calibration."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ...results import Row
from ...rivals.rivals import HIVEMIND, TORCHFT, Rival, RivalError, measure
from .rows import Storm

__all__ = ["RIVALS", "rival_rows"]

_log = logging.getLogger("rumor.benchmarks")

RIVALS: Final[Mapping[str, Rival]] = MappingProxyType({"torchft": TORCHFT, "hivemind": HIVEMIND})
"""By name."""

_SCRIPT: Final = Path(__file__).parents[2] / "rivals" / "outer.py"

_KILL_STEPS: Final = 20
"""When one is killed, in steps; and so long they train before, and twice as long after it."""
_SECONDS: Final = (75.0, 90.0)
_DOWN_S: Final = 1.0
_PEERS_MAX: Final = 4
"""A process of theirs imports for some seconds of a core; ours are forked."""


def rival_rows(
    names: Sequence[str], storm: Storm, n_params: int, *, cache: Path | None = None
) -> Iterator[Row]:
    """Run other systems around one kill, with steps that sleep as long as ours last.

    Args:
        names: Of `RIVALS`.
        storm: What ours came to; its calibration had kills, too.
        n_params: Of the model.
        cache: Where rivals are installed; see `rumor.benchmarks.rivals.rivals.install`.
    """
    for name in names:
        _log.info("%s around one kill", name)
        try:
            found = measure(RIVALS[name], str(_SCRIPT), _asked(name, storm, n_params), {}, cache)
        except RivalError as error:
            why = f"{name} was not measured: {error}"
            yield Row(name=f"{name}, not measured", ours=0.0, reference=0.0, unit="", note=why)
        else:
            yield from _rows(name, found, storm)


def _asked(name: str, storm: Storm, n_params: int) -> dict[str, Any]:
    least_s, most_s = _SECONDS
    seconds = min(most_s, max(least_s, 3 * _KILL_STEPS * storm.step_s))
    return {
        "rival": name,
        "n_params": n_params,
        "peers": min(storm.peers, _PEERS_MAX),
        "step_s": storm.step_s,
        "sync_every": max(1, round(1 / storm.p)),
        "seconds": seconds,
        "kill_s": seconds / 3,
        "down_s": _DOWN_S,
    }


def _rows(name: str, found: Mapping[str, Any], storm: Storm) -> Iterator[Row]:
    asked = _asked(name, storm, 0)
    how = (
        f"{found['engine']}, {asked['peers']} peers, averaging every {asked['sync_every']} steps "
        f"of {storm.step_s:.3g} s asleep, one kill"
    )
    calm = storm.calm
    if calm.pause is not None:
        yield Row(
            name=f"one kill, longest pause, beside {name}",
            ours=calm.pause.steps,
            reference=found["pause_steps"],
            unit="own steps",
            note=f"{how}; {found['pause_s']:.3g} s, and {found['calm_steps']:.2f} steps before the "
            "kill; ours from the calibration",
        )
    if calm.returns.seconds and found["return_s"] is not None:
        yield Row(
            name=f"one kill, victim steps again, beside {name}",
            ours=calm.returns.median_s,
            reference=found["return_s"],
            unit="s",
            note=f"{how}; without {found['import_s']:.2f} s of imports, which ours has none of; "
            f"ours from the calibration, median of {len(calm.returns.seconds)}",
        )
    elif found["return_s"] is None:
        why = f"{how}: its victim took no step within {asked['seconds'] - asked['kill_s']:.0f} s"
        name = f"one kill, victim steps again, beside {name}"
        yield Row(name=name, ours=calm.returns.median_s, reference=0.0, unit="s", note=why)
