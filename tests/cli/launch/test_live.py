"""Real peers, started by the real command, with and without faults."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.launch.monitor import Monitor
from rumor.gossip.weight import ONE
from rumor.sim.replay.replay import replay
from rumor.train.faults.schedule import NETWORK_KINDS
from rumor.train.observe.observer import Observer
from rumor.train.observe.stop import SwarmStop
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledger

from ...faults import fault
from ...forked import forked_peers
from ...waiting import LIMIT_S, until
from ..called import called

pytestmark = pytest.mark.live


def launch(*options: str, real: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the summary of a swarm, launched by this process, whose peers are forks.

    Args:
        options: Options of the launcher.
        real: IDs of peers that are separate programs, as for a user.
    """
    with forked_peers(real):
        summary: dict[str, Any] = json.loads(called("launch", "--json", *options, status=0).stdout)
    return summary


@pytest.mark.extended
def test_a_launched_swarm_trains_one_model_and_loses_no_weight(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    options = ("--out", out, "--peers", "2", "--steps", "150", "--set", "step_s_min=0.01")
    summary = launch(*options, real=("peer-0",))
    assert summary["accuracy"] > 0.85
    assert summary["consensus_distance"] < 0.1
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 2 * 2**40
    assert [peer["state"] for peer in summary["peers_detail"]] == ["finished"] * 2
    merges = [peer["merge"] for peer in summary["peers_detail"]]
    assert all(merge["complete"] and not merge["missing"] for merge in merges)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"peers", "rendezvous", "model.safetensors", "summary.json", "training.png"}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Summary of a swarm of three peers, of which one was killed and one stopped halfway."""
    run = tmp_path_factory.mktemp("lessened") / "run"
    # On a path, the two are not neighbors, so the leaver hands its weight to a live peer.
    options = "--topology path --rule gosgd:p=0.5 --steps 200 --set step_s_min=0.02".split()
    ends = ("--timing", "local", "--set", "linger_s=1", "--set", f"leave_s={LIMIT_S}")
    measured = ("--set=journal", "--set", "eval_average_every=10")

    def send_signals() -> None:
        until(lambda: len(steps := steps_of(run)) == 3 and steps[0] >= 20)
        for peer, number in (("peer-0", signal.SIGKILL), ("peer-2", signal.SIGTERM)):
            os.kill(int((run / "peers" / peer / "pid").read_text()), number)

    threading.Thread(target=send_signals, daemon=True).start()
    return launch("--peers", "3", "--out", str(run), *options, *ends, *measured)


def steps_of(run: Path) -> list[int]:
    """The steps that training peers have taken, in rising order."""
    logs = [read_metrics(path) for path in run.glob("peers/*/metrics.jsonl")]
    return sorted(rows[-1]["step"] for rows in logs if rows)


@pytest.mark.extended
def test_the_last_peer_finishes_after_a_kill_and_a_stop(
    interrupted: dict[str, Any],
) -> None:
    steps = [peer["steps"] for peer in interrupted["peers_detail"]]
    assert steps[1] == 200 and steps[0] < 200
    (dead,) = interrupted["dead"]
    assert (dead["id"], dead["why"]) == ("peer-0", "SIGKILL")
    assert interrupted["weight_units_total"] == interrupted["weight_units_expected"]
    assert sum(interrupted["ledger"].values()) == 2 * interrupted["ledger"]["founded"] == 6 * 2**40
    assert interrupted["accuracy"] > 0.85
    # A stopped peer hands its weight over.
    left = interrupted["peers_detail"][2]
    assert (left["state"], left["weight_units"]) == ("left", 0)
    assert left["steps"] < 200
    (account,) = read_ledger(Path(interrupted["out"]) / "peers" / "peer-2" / "ledger.jsonl")
    assert (account.founded, account.weight, account.burned) == (ONE, 0, 0)


@pytest.mark.extended
def test_a_killed_peer_is_replayed_to_the_end_of_its_journal(interrupted: dict[str, Any]) -> None:
    found = replay(interrupted["out"])
    assert found.identical, (found.difference, [peer.why for peer in found.peers])
    dead = found.peers[0]
    assert not dead.closed and not dead.compared and 20 <= dead.steps < 200 and dead.mixed > 0
    assert all(peer.compared for peer in found.peers if peer is not dead)


@pytest.fixture
def await_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of faults start once the second peer has a checkpoint."""
    began, kept = Monitor.began, tmp_path / "run" / "peers" / "peer-1" / "checkpoints"
    assert isinstance(began, property) and began.fget is not None
    is_begun = began.fget

    def has_begun(monitor: Monitor) -> bool:
        return is_begun(monitor) and any(kept.glob("*.safetensors"))

    monkeypatch.setattr(Monitor, "began", property(has_begun))


def is_exact(summary: dict[str, Any]) -> bool:
    """Return whether the ledgers of all incarnations account for every founded unit."""
    ledger = summary["ledger"]
    found = sum(units for name, units in ledger.items() if name != "founded")
    same: bool = summary["weight_units_total"] == summary["weight_units_expected"]
    return same and found == ledger["founded"] >= 3 * 2**40


@pytest.mark.extended
@pytest.mark.usefixtures("await_checkpoint")
def test_no_weight_is_lost_under_network_and_peer_faults(tmp_path: Path) -> None:
    faults = [
        fault(0, "loss", rate=0.1, for_s=2),
        fault(0, "duplicate", rate=0.2),
        fault(0, "replay", 2, rate=0.2),
        fault(0, "delay", by_s=0.005, for_s=2),
        fault(0.1, "reset", every_s=0.2, for_s=1),
        fault(0.2, "cut", 0, to=1, one_way=True, for_s=0.5),
        fault(0.5, "join"),
        fault(0.8, "partition", groups=[[0, 1]]),
        fault(1.6, "heal"),
        fault(1.8, "crash", 1),
        fault(2.0, "restart", 1),
    ]
    assert {each["kind"] for each in faults} > {*NETWORK_KINDS}
    peers = tmp_path / "run" / "peers"

    def stop() -> None:
        """End the swarm once all faults are over and all started peers train."""
        logs = [peers / id / "log.txt" for id in ("peer-1", "join-1")]
        until(lambda: all(log.exists() and "joined: " in log.read_text() for log in logs))
        until(lambda: sum(steps_of(tmp_path / "run")) >= 1200)
        (address,) = (tmp_path / "run").glob("rendezvous/peer-0.addr")
        with Observer(address.read_text().strip()) as observer:
            for _ in SwarmStop(observer, timeout_s=LIMIT_S).run(LIMIT_S):
                pass

    thread = threading.Thread(target=stop)
    thread.start()
    path = tmp_path / "faults.json"
    path.write_text(json.dumps(faults))
    summary = launch(
        "--peers=3",
        f"--out={tmp_path / 'run'}",
        f"--faults={path}",
        "--timing=local",
        "--steps=1000000",
        "--set=step_s_min=0.01",
        "--set=checkpoint_every=5steps",
        f"--set=leave_s={LIMIT_S}",
    )
    thread.join()
    assert is_exact(summary)
    assert all(fault["done"] for fault in summary["faults"])
    details = summary["peers_detail"]
    assert [peer["id"] for peer in details] == ["peer-0", "peer-1", "peer-2", "join-1"]
    assert {peer["state"] for peer in details} == {"finished"} and details[1]["lives"] == 2
    assert [(dead["id"], dead["life"]) for dead in summary["dead"]] == [("peer-1", 1)]
    assert "resuming peer-1 after" in (peers / "peer-1" / "log.txt").read_text()
    # Its steps continued, and its weight came with a copy of another peer's model.
    steps = [row["step"] for row in read_metrics(peers / "peer-1" / "metrics.jsonl")]
    assert steps.count(1) == 1 and details[1]["weight_units"] > 0
    assert not summary["exchange"]["shared_memory"] and summary["accuracy"] > 0.85


@pytest.mark.extended
@pytest.mark.parametrize("rule", ["allreduce", "local-sgd:h=20"])
def test_peers_of_a_synchronous_rule_end_after_the_same_step(tmp_path: Path, rule: str) -> None:
    swarm = ("--peers", "3", "--topology", "complete", "--rule", rule, "--slow", "2:3")
    ends = ("--total-steps", "100", "--set", "step_s_min=0.005", "--timing", "local")
    summary = launch("--out", str(tmp_path / "run"), *swarm, *ends)
    assert is_exact(summary)
    found = [(peer["state"], peer["steps"]) for peer in summary["peers_detail"]]
    assert found == [("finished", 34)] * 3
