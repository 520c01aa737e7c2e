"""Each scene on something small; at full size ``python -m tests.live.measure`` plays them.

In all of them the ledgers on disk account for every unit, and the survivors train on (`scenes`).
How long their pauses are is measured, and never asserted: this machine may be busy.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip.weight import ONE

from ..hosts import HostsError
from . import scenes

pytestmark = pytest.mark.live

MB = 1_000_000
RESETS: dict[str, Any] = {"for_s": 5, "resets_min": 20}

SLOW: list[tuple[Any, int, dict[str, Any], set[str]]] = [
    # What was broken off is known to have been, since there is a later life.
    (scenes.receiver_killed, 16 * MB, {}, {"died", "burned", "in_flight"}),
    (scenes.resets, 4 * MB, RESETS, set()),
    (scenes.resets, 64 * MB, {**RESETS, "shards": 32}, set()),
    (scenes.stopped, MB, {"for_s": 15, "preset": "local"}, set()),
    (scenes.slow_link, 24 * MB, {"link_bytes_s": 4e6}, set()),
    (scenes.one_way_cut, MB, {"for_s": 12}, {"burned"}),
    (
        scenes.half_killed,
        MB // 10,
        {"step_s": 0.1, "peers": 8},
        {"died", "burned", "in_flight", "stranded"},
    ),
]


@pytest.mark.parametrize(
    ("scene", "size_bytes", "given", "elsewhere"),
    [
        *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW),
        pytest.param(scenes.dial_out_only, MB, {}, set(), marks=pytest.mark.extended),
    ],
)
def test_weight_that_is_not_held_is_known_to_be_elsewhere(
    tmp_path: Path,
    scene: Callable[..., scenes.Outcome],
    size_bytes: int,
    given: dict[str, Any],
    elsewhere: set[str],
) -> None:
    settings = {"step_s": 0.02} | given
    try:
        units = scene(tmp_path, size_bytes, **settings).audit
    except HostsError as error:
        pytest.skip(str(error))
    gone = {name: getattr(units, name) for name in ("died", "burned", "in_flight", "stranded")}
    assert {name for name, each in gone.items() if each} <= elsewhere
    founders = given.get("peers", 1) * given.get("shards", 1)
    assert units.held + sum(gone.values()) == units.founded == founders * ONE
