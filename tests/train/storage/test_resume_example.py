"""The example of a training loop that resumes after a kill."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from ...forked import Forked, forked
from ...waiting import until

EXAMPLE = Path(__file__).parents[3] / "examples" / "resume.py"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not EXAMPLE.exists(), reason="examples are not next to the tests"),
]


def result(output: str) -> str:
    found = re.search(r"accuracy [\d.]+ on held-out digits after 400 steps", output)
    assert found, output
    return found[0]


@pytest.mark.extended
def test_a_killed_and_restarted_run_ends_with_the_same_result(tmp_path: Path) -> None:
    with ExitStack() as stack:

        def start(folder: str, *arguments: str) -> Forked:
            command = ("--steps", "400", "--folder", str(tmp_path / folder), *arguments)
            process = forked(tmp_path / f"{folder}.txt", str(EXAMPLE), *command)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        whole = start("whole")
        first = start("killed", "--pace-s", "0.01")
        until((tmp_path / "killed" / "checkpoint-000001.safetensors").exists)
        assert first.poll() is None
        first.kill()
        first.wait()
        assert start("killed").wait() == whole.wait() == 0
    output = (tmp_path / "killed.txt").read_text()
    assert "resuming after 100 steps" in output
    assert result(output) == result((tmp_path / "whole.txt").read_text())
