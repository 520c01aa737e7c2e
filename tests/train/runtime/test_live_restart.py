"""All peers are killed in mid-run and come back from their checkpoints, each a process."""

import json
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import Account, GoSGD, ProtocolConfig, audit
from rumor.gossip.config import timing
from rumor.train import PeerConfig, RunConfig, run
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledgers

from ...forked import PROCESSES
from ...waiting import LIMIT_S

pytestmark = pytest.mark.live

IDS = ("a", "b", "c")
STEPS = 500
EVERY = 50

# Of 5 undisturbed runs like this, the worst peer ended with 0.961; of 5 with the restart, 0.964.
ACCURACY_MIN = 0.94

QUICK: dict[str, Any] = timing("local") | {"found_s": 1.0}


def started(folder: Path, *, resume: bool) -> list[BaseProcess]:
    processes: list[BaseProcess] = []
    for id in IDS:
        config = RunConfig(
            steps=STEPS,
            out=folder / id,
            step_s_min=0.004,
            checkpoint_every=f"{EVERY}steps",
            resume=resume,
        )
        peer_config = PeerConfig(
            id=id,
            founders=len(IDS),
            rendezvous=folder / "r",
            rule=GoSGD(p=0.3),
            protocol=ProtocolConfig(**QUICK),
        )
        process = PROCESSES.Process(target=run, args=(config, peer_config))
        process.start()
        processes.append(process)
    return processes


def until(condition: Callable[[], bool], processes: Sequence[BaseProcess]) -> None:
    give_up_s = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < give_up_s, "it never came"
        assert all(process.is_alive() for process in processes), "one ended early"
        time.sleep(0.05)


def last_step(folder: Path, id: str) -> int:
    rows = read_metrics(folder / id / "metrics.jsonl")
    return int(rows[-1]["step"]) if rows else 0


@pytest.fixture
def restarted(tmp_path: Path) -> Path:
    first = started(tmp_path, resume=False)
    try:
        until(lambda: min(last_step(tmp_path, id) for id in IDS) >= 2 * EVERY, first)
    finally:
        for process in first:
            process.kill()
            process.join()
    rows = [len(read_metrics(tmp_path / id / "metrics.jsonl")) for id in IDS]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    for process in started(tmp_path, resume=True):
        process.join(LIMIT_S)
        assert process.exitcode == 0
    return tmp_path


def test_a_swarm_whose_peers_all_died_goes_on_to_the_same_accuracy(restarted: Path) -> None:
    killed = json.loads((restarted / "rows.json").read_text())
    accounts: list[Account] = []
    dead = set()
    for id, n_rows in zip(IDS, killed, strict=True):
        report: dict[str, Any] = json.loads((restarted / id / "peer.json").read_text())
        assert (report["state"], report["steps"], report["lives"]) == ("finished", STEPS, 2)
        assert report["accuracy"] >= ACCURACY_MIN
        rows = read_metrics(restarted / id / "metrics.jsonl")
        last, first = rows[n_rows - 1]["step"], rows[n_rows]["step"]
        # A row each ten steps, a checkpoint each fifty: the one that was being written may be lost.
        assert first % EVERY == 10 and last - 2 * EVERY < first <= last + 10
        assert 3 * STEPS <= report["swarm_steps"] <= 3 * (STEPS + 2 * EVERY + 10)
        lives = read_ledgers(restarted / id)
        assert len(lives) == 2
        accounts += lives
        dead.add(lives[0].life)
    whole = audit(accounts, dead)
    assert whole.balanced and whole.held > 0
    assert whole.held + whole.burned + whole.died == whole.founded
