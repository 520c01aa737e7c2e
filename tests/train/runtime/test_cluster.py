"""Settings of peers that follow from the variables of cluster schedulers."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from rumor.gossip import ConfigError
from rumor.train import Peer, PeerConfig, environment
from rumor.train.runtime.script.cluster import (
    JOINS_MAX,
    ClusterTask,
    _warn_once,
    cluster_task,
    expand,
    expand_counts,
    joins,
)
from rumor.train.runtime.script.environment import _made
from rumor.train.tensors import cuda

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "5",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "node[01-03]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "0",
    "MASTER_ADDR": "node01",
    "MASTER_PORT": "29500",
}


def task_in(variables: dict[str, str]) -> ClusterTask:
    task, _ = cluster_task(variables)
    assert task is not None
    return task


def test_a_slurm_task_knows_the_addresses_of_all_tasks() -> None:
    task = task_in(SLURM)
    assert (task.scheduler, task.job, task.id) == ("slurm", "4711", "peer-3")
    first = task.port - 1
    assert task.host == "node02"
    assert task.places == (
        ("node01", first),
        ("node01", first + 1),
        ("node02", first),
        ("node02", first + 1),
        ("node03", first),
    )
    # Below the ports that Linux gives to clients.
    assert 20_000 <= first < 32_768 and task.port == task_in(SLURM | {"SLURM_PROCID": "2"}).port
    assert task_in(SLURM | {"SLURM_JOB_ID": "4712"}).port != task.port
    env = task.variables()
    assert (env["RUMOR_INDEX"], env["RUMOR_COUNT"], env["RUMOR_FOUNDERS"]) == ("3", "5", "1")
    assert env["RUMOR_ADVERTISE"] == f"tcp://node02:{first + 1}"
    moved = task.variables(port=7700)
    assert moved["RUMOR_BIND"] in ("tcp://0.0.0.0:7701", "tcp://0.0.0.0:*")
    assert moved["RUMOR_JOIN"].split(",")[0] == "tcp://node03:7700"


def test_batch_scripts_single_tasks_and_shells_are_not_cluster_tasks() -> None:
    batch = {name: text for name, text in SLURM.items() if "_STEP_" not in name}
    for variables in (batch, SLURM | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, {}):
        assert cluster_task(variables) == (None, 0)
    assert cluster_task(SLURM | {"RUMOR_CLUSTER": "none"}) == (None, 0)
    assert cluster_task(SLURM | TORCHRUN | {"RUMOR_CLUSTER": "slurm"}) == cluster_task(SLURM)
    # Without counts, tasks are spread evenly.
    spread = {k: v for k, v in SLURM.items() if k != "SLURM_STEP_TASKS_PER_NODE"}
    assert [host for host, _ in task_in(spread).places].count("node01") == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"SLURM_PROCID": "5"}, "SLURM_PROCID is 5: it must be below 5"),
        ({"SLURM_LOCALID": "one"}, "SLURM_LOCALID is 'one'"),
        ({"SLURM_LOCALID": ""}, "SLURM_LOCALID is not set"),
        ({"SLURM_NODEID": "3"}, "SLURM_NODEID is 3: it must be below 3"),
        ({"SLURM_STEP_TASKS_PER_NODE": "5"}, "there are 3 nodes"),
        ({"SLURM_STEP_NODELIST": "node[1-"}, "not a list of hosts"),
        ({"RUMOR_CLUSTER": "pbs"}, "known are auto, none, torchrun, slurm"),
    ],
)
def test_invalid_variables_are_named_in_the_error(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        cluster_task(SLURM | changed)


def test_a_torchrun_task_joins_the_tasks_of_the_first_host() -> None:
    task = task_in(TORCHRUN)
    first = task.port - 1
    assert (task.id, task.job) == ("peer-1", "29500")
    assert task.host == "node01"
    assert task.variables()["RUMOR_JOIN"] == f"tcp://node01:{first}"
    far = task_in(TORCHRUN | {"RANK": "3", "GROUP_RANK": "1", "TORCHELASTIC_RUN_ID": "mine"})
    assert (far.host, far.job) == (None, "mine")
    variables = far.variables()
    assert "RUMOR_ADVERTISE" not in variables
    assert variables["RUMOR_JOIN"] == f"tcp://node01:{first},tcp://node01:{first + 1}"
    # A Slurm step that runs torchrun.
    assert cluster_task(SLURM | TORCHRUN) == (task, 0)


def test_join_addresses_connect_all_tasks() -> None:
    places = [(f"node{host}", 20_000 + slot) for host in range(20) for slot in range(4)]
    reached, front = {places[0]}, [places[0]]
    for place in front:
        seeds = joins(places, place)
        assert len(seeds) == JOINS_MAX and f"tcp://{place[0]}:{place[1]}" not in seeds
        assert len({address.rpartition(":")[0] for address in seeds}) >= 2
        for host, port in places:
            if f"tcp://{host}:{port}" in seeds and (host, port) not in reached:
                reached.add((host, port))
                front.append((host, port))
    assert reached == {*places}
    assert joins([("a", 1)], ("a", 1)) == ()
    assert joins(places, None)[0] == "tcp://node0:20000"


def test_the_system_chooses_the_port_if_the_derived_port_is_taken() -> None:
    near = SLURM | {"SLURM_STEP_NODELIST": "127.0.0.[1-3]"}
    with socket.socket() as other:
        other.bind(("127.0.0.2", 0))
        other.listen()
        port = other.getsockname()[1]
        variables = task_in(near).variables(port=port - 1)
    assert variables["RUMOR_BIND"] == "tcp://127.0.0.2:*" and "RUMOR_ADVERTISE" not in variables
    # ZeroMQ binds addresses, not names.
    away = replace(task_in(SLURM), host="localhost")
    assert away.variables()["RUMOR_BIND"].startswith("tcp://127.0.0.1:")
    six = task_in(SLURM | {"SLURM_STEP_NODELIST": "fd00::[1-3]"})
    assert six.variables()["RUMOR_BIND"].startswith("tcp://[::]:")


def test_scheduler_settings_apply_unless_the_script_sets_addresses() -> None:
    env = environment(SLURM | {"RUMOR_SEED": "7", "RUMOR_RULE": "sgp"})
    assert (env.index, env.count, env.local_index, env.seed) == (3, 5, 1, 7)
    config = env.fill(PeerConfig())
    assert (config.id, config.rule, config.signals, len(config.join)) == ("peer-3", "sgp", True, 4)
    own = env.fill(PeerConfig(join="tcp://node-a:7700"))
    assert (own.id, own.rule, own.join) == (None, "sgp", ("tcp://node-a:7700",))
    # Variables that rumor run sets for its own processes override those of the scheduler.
    launched = environment(SLURM | {"RUMOR_ID": "anna", "RUMOR_JOIN": "tcp://node-a:7700"})
    assert (launched.index, launched.placed) == (0, {})


def test_tasks_are_assigned_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen: list[str] = []

    def find(name: str) -> torch.device:
        chosen.append(name)
        return torch.device("cpu")

    monkeypatch.setattr("rumor.train.runtime.script.environment.find_device", find)
    for local in range(3):
        _ = environment(SLURM | {"SLURM_LOCALID": str(local)}).device
    _ = environment(SLURM | {"RUMOR_DEVICE": "cpu"}).device
    assert chosen == ["cuda:0", "cuda:1", "cuda:0", "cpu"]
    assert cuda.find_device("cpu") == torch.device("cpu")


@pytest.mark.live
def test_a_peer_resumes_and_writes_its_ready_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    ready.write_text("left behind\n")
    options = {"OUT": tmp_path / "peer", "ID": "anna", "RESUME": 1, "READY": ready, "LINGER_S": 0}
    for name, value in options.items():
        monkeypatch.setenv(f"RUMOR_{name}", str(value))
    for run in range(2):
        _made.clear()  # as in a new process
        with Peer(nn.Linear(2, 1)) as peer:
            assert ready.read_text() == "anna\n" and peer.steps == 3 * run
            for _ in range(3):
                peer.step()
        assert not ready.exists() and peer.steps == 3 * (run + 1)
    _made.clear()
    third = Peer(nn.Linear(2, 1))
    assert third.resume()
    with third:
        assert third.steps == 6


@pytest.mark.live
def test_an_unwritable_ready_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUMOR_READY", str(tmp_path / "no" / "ready"))
    with pytest.raises(ConfigError, match="RUMOR_READY"), Peer(nn.Linear(2, 1)):
        pass


@pytest.mark.parametrize(("tasks", "warns"), [("2", True), ("1", False)])
def test_separate_torchruns_on_slurm_nodes_log_a_warning(
    caplog: pytest.LogCaptureFixture, tasks: str, warns: bool
) -> None:
    _warn_once.cache_clear()
    variables = {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    variables |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "2"}
    variables |= {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": tasks}
    for _ in range(2):
        assert cluster_task(variables)[0] is not None
    assert caplog.text.count("each node trains a swarm of its own") == warns


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", ["login"]),
        ("10.0.0.[1-3]", ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        (
            "node[01-03,7],gpu-a[1-2]b",
            ["node01", "node02", "node03", "node7", "gpu-a1b", "gpu-a2b"],
        ),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("[1-2].rack", ["1.rack", "2.rack"]),
    ],
)
def test_host_lists_are_expanded(text: str, hosts: list[str]) -> None:
    assert list(expand(text)) == hosts


def test_task_counts_are_expanded() -> None:
    assert expand_counts("72(x3),8,128(x2)") == (72, 72, 72, 8, 128, 128)


@pytest.mark.parametrize(
    ("read", "message", "texts"),
    [
        (expand, "list of hosts", ("", ",", "a,,b", "a b", "node[1-2", "node1-2]", "node[[1-2]]")),
        (expand, "range such as", ("node[]", "node[a-b]", "node[3-1]", "node[1-2,]", "n[٣]")),
        (expand_counts, "not a list of counts", ("", "2(3)", "x", "1,")),
    ],
)
def test_malformed_host_lists_and_counts_are_refused(
    read: Callable[[str], object], message: str, texts: Sequence[str]
) -> None:
    for text in texts:
        with pytest.raises(ConfigError, match=message):
            read(text)
