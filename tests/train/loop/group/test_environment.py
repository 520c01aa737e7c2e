"""The processes of one peer under launchers and schedulers, in all combinations."""

import pytest

from rumor.gossip import ConfigError
from rumor.train import environment

# Two processes of the second of three peers.
RUMOR = {"RUMOR_INDEX": "1", "RUMOR_COUNT": "3", "RUMOR_ID": "mine", "RUMOR_JOIN": "tcp://a:7700"}
STANDALONE = {
    "TORCHELASTIC_RUN_ID": "x",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}
WHOLE_JOB = STANDALONE | {"WORLD_SIZE": "6", "GROUP_RANK": "1", "MASTER_ADDR": "node1"}
SLURM = {
    "SLURM_JOB_ID": "40",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[1-3]",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
}


def ranks_of_torchrun(first: int) -> list[dict[str, str]]:
    return [{"RANK": str(first + rank), "LOCAL_RANK": str(rank)} for rank in range(2)]


STANDALONE_RANKS = [STANDALONE | each for each in ranks_of_torchrun(0)]
JOB_RANKS = [WHOLE_JOB | each for each in ranks_of_torchrun(2)]
# Without torchrun, Slurm starts each process itself.
SLURM_RANKS = [
    SLURM
    | {"SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
    | {"SLURM_PROCID": str(2 + rank), "SLURM_LOCALID": str(rank)}
    for rank in range(2)
]


@pytest.mark.parametrize(
    ("ranks", "index", "count", "id"),
    [
        ([{}, {}], 0, 1, None),
        (STANDALONE_RANKS, 0, 1, None),
        (JOB_RANKS, 1, 3, "peer-1"),
        (SLURM_RANKS, 1, 3, "peer-1"),
        ([each | SLURM for each in STANDALONE_RANKS], 1, 3, "peer-1"),
        ([each | SLURM for each in JOB_RANKS], 1, 3, "peer-1"),
        ([RUMOR, RUMOR], 1, 3, "mine"),
        ([each | RUMOR for each in STANDALONE_RANKS], 1, 3, "mine"),
        ([each | RUMOR for each in SLURM_RANKS], 1, 3, "mine"),
        ([each | RUMOR | SLURM for each in STANDALONE_RANKS], 1, 3, "mine"),
    ],
)
def test_all_processes_of_a_peer_have_its_index_and_id(
    ranks: list[dict[str, str]], index: int, count: int, id: str | None
) -> None:
    found = [environment(variables, ranks=2) for variables in ranks]
    for each in found:
        assert (each.index, each.count, each.ranks) == (index, count, 2)
        assert {**each.placed, **each.fields}.get("id") == id
    assert found[0].placed == found[1].placed
    if ranks[0].keys() & {"RANK", "SLURM_PROCID"}:
        assert [each.rank for each in found] == [0, 1]


def test_each_slurm_host_has_one_port_for_each_peer() -> None:
    (task, _) = (environment(each, ranks=2).task for each in SLURM_RANKS)
    assert task is not None
    assert [host for host, _ in task.places] == ["node1", "node2", "node3"]
    assert len({port for _, port in task.places}) == 1


def test_a_process_count_that_is_not_divisible_by_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match="torchrun has started 6 processes, and a peer has 4"):
        environment(JOB_RANKS[0], ranks=4)


def test_a_peer_restarted_by_torchrun_resumes() -> None:
    again = {"TORCHELASTIC_RESTART_COUNT": "1"}
    assert [environment(each | again, ranks=2).resume for each in STANDALONE_RANKS] == [True, True]
    assert not environment(STANDALONE_RANKS[0], ranks=2).resume
