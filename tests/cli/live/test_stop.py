"""``rumor stop``: real swarms end, and resume from their checkpoints."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rumor.sim.replay.replay import replay

from ...forked import Forked, forked
from ...gossip.transport.keyrings import Swarm
from ...waiting import LIMIT_S, until
from ..called import called
from ..cluster.machines import free_port


def stop(*words: object, status: int = 0) -> tuple[str, str]:
    result = called("stop", *words, "--wait-s", LIMIT_S, status=status)
    return result.stdout, result.stderr


def test_a_key_that_does_not_own_the_roster_is_refused(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    keys = ("--key", swarm.machine("m1"), "--roster", swarm.file())
    _, error = stop("node-a:1", *keys, status=2)
    assert "m1.key is not the key of the owner of" in " ".join(error.split())


class Run:
    """Peers as processes, each with its own folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.address = f"127.0.0.1:{free_port()}"

    def start(self, id: str, *more: str, life: str = "") -> Forked:
        log = self.folder / f"{id}{life}.log"
        process = forked(log, "rumor", "peer", *more)
        self._stack.callback(process.wait, LIMIT_S)
        self._stack.callback(process.kill)
        until(log.exists, "it starts")
        return process

    def log(self, id: str) -> str:
        return (self.folder / f"{id}.log").read_text()

    def wait_for_log(self, id: str, words: str) -> None:
        until(lambda: words in self.log(id), f"{id}: {words}")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with ExitStack() as stack:
        yield Run(tmp_path, stack)


def swarm_of(run: Run, *more: str, life: str = "") -> list[Forked]:
    """Two training peers, the second of which joined at the address of the first."""
    common = ("--task", "quadratic", "--steps", "1000000", "--set", "step_s_min=0.01", *more)
    common += ("--set", f"linger_s={LIMIT_S}")
    processes = []
    for id, way in (("a", "--bind"), ("b", "--join")):
        own = ("--id", id, "--out", str(run.folder / id), "--set", "founders=2", way, run.address)
        processes.append(run.start(id, *common, *own, life=life))
    for id in ("a", "b"):
        run.wait_for_log(f"{id}{life}", "resuming" if life else "founded a swarm")
    return processes


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "peer.json").read_text())
    return found


@pytest.mark.extended
@pytest.mark.live
def test_a_swarm_ends_and_resumes_from_its_checkpoints(run: Run) -> None:
    first = swarm_of(run)
    output, progress = stop(run.address)
    assert "2 of 2 peers have ended.\nStart it again from its" in output
    assert all(f"{id}: gone after " in output for id in "ab") and "with a weight of" in output
    assert "asking 2 peers of swarm" in progress and "a: gone after" in progress
    assert [process.wait(LIMIT_S) for process in first] == [0, 0]
    before = {id: report(run.folder / id) for id in "ab"}
    for id, end in before.items():
        assert (end["state"], end["ended_by"]) == ("finished", "rumor stop")
        assert end["merge"]["complete"]
        assert f"finished {end['steps']} steps, as rumor stop has ended training" in run.log(id)
    # An earlier request does not stop a resumed peer.
    swarm_of(run, "--resume", life="-2")
    for id in "ab":
        run.wait_for_log(f"{id}-2", f"resuming {id} after {before[id]['steps']} steps")
    run.wait_for_log("a-2", "founded a swarm")
    run.wait_for_log("b-2", "joined: the model is now a copy of a's")
    output = stop(run.address, "--json")[0]
    found = json.loads(output.splitlines()[-1])
    assert found["stopped"] and {peer["state"] for peer in found["peers"]} == {"gone"}
    assert {
        peer["id"]: peer["steps"] >= before[peer["id"]]["steps"] for peer in found["peers"]
    } == {"a": True, "b": True}
    assert sum(peer["weight_units"] for peer in found["peers"]) == 2**40


@pytest.mark.extended
@pytest.mark.live
def test_a_stop_is_in_the_journal_and_replayed(run: Run) -> None:
    swarm_of(run, "--set=journal")
    stop(run.address)
    until(lambda: all((run.folder / id / "peer.json").exists() for id in "ab"), "the end")
    assert replay(run.folder / "a", run.folder / "b").identical


@pytest.mark.extended
@pytest.mark.live
def test_peers_of_a_synchronous_rule_leave(run: Run) -> None:
    processes = swarm_of(run, "--rule", "dpsgd")
    output, _ = stop(run.address)
    assert "2 of 2 peers have ended.\nThey waited for one another" in output
    assert [process.wait(LIMIT_S) for process in processes] == [0, 0]
    assert {report(run.folder / id)["state"] for id in "ab"} == {"left"}


@pytest.mark.extended
@pytest.mark.live
def test_a_peer_that_does_not_stop_gives_status_1(run: Run) -> None:
    swarm_of(run, "--set=remote_stop=false")
    output, _ = stop(run.address, status=1)
    assert output.splitlines()[-1] == "0 of 2 peers have ended."
    assert "it takes no requests to stop (remote_stop=False)" in output


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize("command", ["stop", "top --once", "top --web", "pull -o new"])
def test_a_missing_answer_is_a_one_line_error_with_status_1(
    in_empty_folder: Path, command: str
) -> None:
    address = "127.0.0.1:1"
    done = called(*command.split(), address, status=1)
    *_, line = done.stderr.splitlines()
    assert line.startswith("error: ") and f"{address} does not answer" in line
    assert "is a peer listening there?" in line or "`rumor doctor" in line
    assert done.stdout == "" and not [*in_empty_folder.iterdir()]


@pytest.mark.extended
@pytest.mark.live
def test_the_owner_of_the_roster_stops_a_swarm_with_keys(run: Run) -> None:
    swarm = Swarm(run.folder)
    keys = ("--key", str(swarm.machine("m1")), "--roster", str(swarm.file()))
    own = ("--id", "m1", "--bind", run.address, "--task", "quadratic", "--steps", "1000000")
    process = run.start("m1", *keys, *own, "--set", "step_s_min=0.01")
    run.wait_for_log("m1", "founded a swarm")
    output, _ = stop(run.address, "--key", swarm.owner_key(), *keys[2:])
    assert "m1: gone after" in output
    assert process.wait(LIMIT_S) == 0
