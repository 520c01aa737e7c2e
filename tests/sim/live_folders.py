"""Made-up folders of live runs, with the files that real peers leave."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["leave_peer", "leave_run", "rows_of"]

BEGAN_UNIX_S = 1e9

# Missing settings had their defaults.
OPTIONS: dict[str, Any] = {
    "task": "digits",
    "total_steps": 900,
    "count": 4,
    "seed": 1,
    "topology": "exponential",
    "rule": "gosgd",
}


def rows_of(step_s: float, steps: int = 100, *, since_s: float = 0.0) -> list[dict[str, Any]]:
    """Rows of a peer with constant step time: one at the first step, then one every ten steps.

    Its accuracy rises by 0.01 with every step, up to 0.95; it sends 1 kB a step and 100 B more
    about membership.
    """
    return [
        {
            "step": step,
            "time_s": step * step_s,
            "unix_s": BEGAN_UNIX_S + since_s + step * step_s,
            "accuracy": min(0.95, step / 100) if step % 10 == 0 else None,
            "bytes_sent": 1100 * step,
            "membership_bytes": 100 * step,
            "step_s": step_s,
            "step_s_sd": 0.0,
            "own_s": step_s / 2,
            "own_s_sd": 0.0,
            "sketch": [1.0, float(step)] if step % 10 == 0 else None,
        }
        for step in (1, *range(10, steps + 1, 10))
    ]


def leave_peer(
    folder: Path,
    rows: Sequence[dict[str, Any]],
    *,
    state: str | None = "finished",
    address: str = "tcp://127.0.0.1:7700",
    **options: Any,
) -> Path:
    """Write the files of a peer; without *state* it was killed, or still runs."""
    folder.mkdir(parents=True)
    (folder / "options.json").write_text(json.dumps(OPTIONS | {"id": folder.name} | options))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if state is not None:
        (folder / "peer.json").write_text(json.dumps({"state": state, "address": address}))
    return folder


def leave_run(
    folder: Path, step_s: Sequence[float], *, steps: Sequence[int] | None = None, **options: Any
) -> Path:
    """Write the files that `rumor launch` leaves for peers with these step times."""
    counts = steps or [round(30 / each) // 10 * 10 for each in step_s]
    for index, (each, count) in enumerate(zip(step_s, counts, strict=True)):
        place = folder / "peers" / f"peer-{index}"
        leave_peer(place, rows_of(each, count), index=index, **options)
    summary = {"accuracy": 0.95, "loss": 0.2, "p": options.get("p", 0.1), "faults": []}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder
