"""Each scene at a small size; ``python -m tests.live.measure`` runs them at full size.

In each scene the ledgers on disk account for every unit, and the survivors continue (`scenes`).
The length of their pauses is measured but never asserted, since the machine may be busy.
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
    # Interrupted shares count as lost, since their receiver has a later incarnation.
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
    ("scene", "size_bytes", "options", "losses"),
    [
        *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW),
        pytest.param(scenes.dial_out_only, MB, {}, set(), marks=pytest.mark.extended),
    ],
)
def test_weight_that_no_peer_holds_is_accounted_for(
    tmp_path: Path,
    scene: Callable[..., scenes.Outcome],
    size_bytes: int,
    options: dict[str, Any],
    losses: set[str],
) -> None:
    settings = {"step_s": 0.02} | options
    try:
        units = scene(tmp_path, size_bytes, **settings).audit
    except HostsError as error:
        pytest.skip(str(error))
    not_held = {name: getattr(units, name) for name in ("died", "burned", "in_flight", "stranded")}
    assert {name for name, each in not_held.items() if each} <= losses
    founders = options.get("peers", 1) * options.get("shards", 1)
    assert units.held + sum(not_held.values()) == units.founded == founders * ONE
