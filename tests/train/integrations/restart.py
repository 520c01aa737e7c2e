"""Two processes train in the trainer of another library; one is killed and resumes."""

import json
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import audit
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledgers

from ...forked import Forked, forked
from ...waiting import LIMIT_S, until

__all__ = ["SAVED", "kill_and_resume"]

SAVED = 20
"""Step after which a script writes its only checkpoint, so that no kill can damage it."""


def _start(folder: Path, id: str, *, resume: bool) -> Forked:
    variables: dict[str, Any] = {"ID": id, "OUT": folder / id, "RENDEZVOUS": folder / "meet"}
    variables |= {"FOUNDERS": 2, "RULE": "gosgd:p=0.3", "LOG_EVERY": 1, "LINGER_S": LIMIT_S}
    variables |= {"INDEX": "ab".index(id), "COUNT": 2, "SIGNALS": 1}
    # The killed process finds the other again, however long that takes.
    variables |= {"GOSSIP_S": 0.1, "SEEK_S": 0.05, "SUSPECT_S": 2.0, "DEAD_S": 5.0}
    variables |= {"FOUND_ALONE_S": LIMIT_S}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(f"RUMOR_{name}", str(value))
        # A script trains until this file exists.
        patch.setenv("OVER", str(folder / "over"))
        patch.setenv("RESUME", "1" if resume else "")
        return forked(folder / f"{id}.log", str(folder / "script.py"))


def _steps(folder: Path) -> list[int]:
    path = folder / "metrics.jsonl"
    return [row["step"] for row in read_metrics(path)] if path.exists() else []


def kill_and_resume(folder: Path, script: str, saved: str) -> dict[str, Any]:
    """Kill one process and resume it; check that its steps continue and that weight adds up.

    Args:
        folder: For all files.
        script: Trains a peer that its environment configures.
        saved: A file in the peer's folder that exists once its checkpoint is complete.

    Returns:
        The final report of the killed peer.
    """
    (folder / "script.py").write_text(script)
    running = {id: _start(folder, id, resume=False) for id in "ab"}

    def none_ended() -> bool:
        for id, process in running.items():
            assert process.poll() is None, (folder / f"{id}.log").read_text()
        return True

    try:
        b = folder / "b"
        until(lambda: none_ended() and (b / saved).exists(), "a checkpoint")
        until(lambda: none_ended() and max(_steps(b)) > SAVED, "a step after it")
        running["b"].kill()
        running["b"].wait()
        before = len(_steps(b))
        running["b"] = _start(folder, "b", resume=True)
        until(lambda: none_ended() and len(_steps(b)) >= before + 30, "more steps")
        (folder / "over").touch()
        for id, process in running.items():
            assert process.wait(LIMIT_S) == 0, (folder / f"{id}.log").read_text()
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    assert _steps(b)[before] == SAVED + 1
    lives = read_ledgers(b)
    assert len(lives) == 2 and lives[0].life[0] == lives[1].life[0] == "b"
    assert lives[0].life[1] < lives[1].life[1]
    # The second incarnation founds nothing: the first one's weight died or is with the other peer.
    assert lives[1].founded == 0
    whole = audit([*read_ledgers(folder / "a"), *lives], {lives[0].life})
    assert whole.balanced and whole.held > 0
    assert whole.held + whole.burned + whole.died == whole.founded
    report: dict[str, Any] = json.loads((b / "peer.json").read_text())
    assert (report["state"], report["lives"]) == ("finished", 2)
    assert report["steps"] >= SAVED + 30
    assert report["merge"]["complete"]
    return report
