"""``rumor pull``: the file that it writes and replaces."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from ...train.members import Member, linear, one_of, swarm
from ...waiting import LIMIT_S, until
from ..called import called


def pull(*words: object, status: int = 0) -> tuple[str, str]:
    result = called("pull", *words, status=status)
    return result.stdout, " ".join(result.stderr.split())


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    made = [one_of(tmp_path / "swarm", id, 2, obeys=False) for id in "ab"]
    with swarm(*made, at_once=True) as found:
        yield found


@pytest.mark.extended
@pytest.mark.live
def test_the_file_is_written_and_replaced_until_the_command_is_stopped(
    tmp_path: Path, members: list[Member]
) -> None:
    address, file = members[0].address.removeprefix("tcp://"), tmp_path / "model.safetensors"

    def written() -> bool:
        output, _ = pull(address, "-o", file, "--force")
        return f"{file}: the average of 2 of 2 peers" in output and "a: 0." in output

    until(written)
    # Both peers started with the same model and did not train.
    state = load_file(file)
    assert all((value == state[name]).all() for name, value in linear().state_dict().items())
    report: dict[str, Any] = {}

    def all_read() -> bool:
        report.update(json.loads(pull(address, "-o", file, "--force", "--json")[0]))
        return len(report["peers"]) == 2

    until(all_read)
    assert report["swarm"] == members[0].peer.stats().swarm and report["frozen"] == []
    assert [each["id"] for each in report["peers"]] == ["a", "b"] and not report["missing"]
    times: set[int] = set()

    def end_after_some() -> None:
        def seen() -> bool:
            times.add(file.stat().st_mtime_ns)
            # The line about a file is printed after it, and before the next file.
            return len(times) > 3

        until(seen)
        os.kill(os.getpid(), signal.SIGINT)

    ending = threading.Thread(target=end_after_some)
    ending.start()
    watched, _ = pull(address, "-o", file, "--force", "--watch", "0.1s")
    ending.join(LIMIT_S)
    assert watched.count(f"{file}: the average of") > 1
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [file.name]
