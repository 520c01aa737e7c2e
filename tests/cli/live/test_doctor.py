"""``rumor doctor``: its report about a real peer, and about obstacles."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ...gossip.transport.keyrings import Swarm
from ...waiting import LIMIT_S, until
from ..called import called
from .test_stop import Run

pytestmark = pytest.mark.live

PATIENT = ("--timeout-s", str(LIMIT_S))
"""A timeout that is long enough for every answer."""


def doctor(*words: object, status: int = 0) -> str:
    result = called("doctor", *words, status=status)
    return result.stdout if status < 2 else result.stderr


def causes(*words: object, status: int = 0) -> list[list[str]]:
    output = json.loads(doctor(*words, *PATIENT, "--json", status=status).splitlines()[-1])
    return [[finding["cause"] for finding in each["findings"]] for each in output["addresses"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A peer that trains on the quadratic task and has a folder."""
    with ExitStack() as stack:
        run = Run(tmp_path_factory.mktemp("swarm"), stack)
        own = ("--id", "a", "--out", str(run.folder / "a"), "--bind", run.address)
        endless = "--steps 1000000 --set step_s_min=0.02 --set checkpoint_every=5steps"
        run.start("a", "--task", "quadratic", *own, *endless.split())
        run.wait_for_log("a", "founded a swarm")
        yield run


@pytest.mark.extended
def test_a_joinable_address_is_reported_with_its_model(run: Run) -> None:
    first, second = doctor(run.address, "--task", "quadratic").splitlines()
    assert first.startswith(f"{run.address}: could join: a, swarm ")
    assert "round trip" in first and first.endswith("MB/s")
    tensor = "weight (1, 32) float32"
    assert second == f"  model: 1 tensor from {tensor} to {tensor}, 128 bytes"


def test_json_also_has_members_and_the_link(run: Run) -> None:
    report: dict[str, Any] = json.loads(doctor(run.address, "--json"))["addresses"][0]
    assert report["can_join"] and report["peer"] == "a"
    assert report["members"] == {"a": [f"tcp://{run.address}"]}
    assert report["link"]["roundtrip_s"] > 0


@pytest.mark.extended
def test_each_address_has_its_own_line(run: Run) -> None:
    closed = "127.0.0.1:1"
    output = doctor(run.address, closed, *PATIENT, status=1)
    assert f"{run.address}: could join" in output
    assert f"{closed}: cannot join: nothing listens at port" in output
    assert "start the peer there, correct the port" in output
    assert causes(run.address, closed, status=1) == [[], ["closed"]]


def test_a_different_task_or_rule_is_reported(run: Run) -> None:
    output = doctor(run.address, "--task", "digits", status=1)
    assert "it trains another model: tensor 0 is 0.weight (32, 64) float32 here" in output
    assert causes(run.address, "--task", "quadratic", "--shards", "2", status=1) == [["model"]]
    assert causes(run.address, "--rule", "dpsgd", status=1) == [["rule"]]


@pytest.mark.extended
def test_two_swarms_cannot_be_joined_at_once(run: Run, tmp_path: Path) -> None:
    with ExitStack() as stack:
        other = Run(tmp_path, stack)
        seed = ("--set", "seed=7", "--steps", "1000000", "--set", "step_s_min=0.02")
        other.start("z", "--task", "quadratic", "--id", "z", "--bind", other.address, *seed)
        other.wait_for_log("z", "founded a swarm")
        assert causes(run.address, other.address, status=1) == [[], ["swarm"]]
        output = doctor(run.address, other.address, status=1)
        assert "a peer joins one swarm: give addresses of" in output


@pytest.mark.extended
def test_a_peer_that_still_looks_for_a_swarm_is_reported(tmp_path: Path) -> None:
    with ExitStack() as stack:
        alone = Run(tmp_path, stack)
        words = ("--task", "quadratic", "--id", "s", "--set", "founders=2", "--bind", alone.address)
        alone.start("s", *words)
        host, port = alone.address.split(":")

        def listens() -> bool:
            with socket.socket() as probe:
                return not probe.connect_ex((host, int(port)))

        until(listens, "it listens")
        assert "it looks for a swarm" in doctor(alone.address, *PATIENT)


@pytest.mark.extended
def test_a_key_revoked_in_the_local_roster_is_reported(run: Run, tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    key = swarm.machine("m1")
    swarm.revoke("m1")
    output = doctor(run.address, "--key", key, "--roster", swarm.file(), status=2)
    assert "is not let in by" in output and "`rumor keys add ROSTER m1" in output


@pytest.mark.extended
def test_a_peer_without_keys_is_reported_if_keys_are_given(run: Run, tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    words = (run.address, "--key", swarm.machine("m1"), "--roster", swarm.file())
    patience_s = 1.0

    def is_reported() -> bool:
        nonlocal patience_s
        patience_s *= 2
        output = doctor(*words, "--timeout-s", patience_s, status=1)
        return "it has no keys, and this peer would have some" in output

    until(is_reported)
