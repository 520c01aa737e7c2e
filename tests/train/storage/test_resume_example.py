"""The example of a loop that goes on where it stood, killed on the way."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from ...forked import Forked, forked
from ...waiting import until

EXAMPLE = Path(__file__).parents[3] / "examples" / "resume.py"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not EXAMPLE.exists(), reason="examples are not beside the tests"),
]


def result(said: str) -> str:
    found = re.search(r"accuracy [\d.]+ on held-out digits after 400 steps", said)
    assert found, said
    return found[0]


@pytest.mark.extended
def test_killed_and_started_again_it_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    with ExitStack() as stack:

        def start(folder: str, *arguments: str) -> Forked:
            told = ("--steps", "400", "--folder", str(tmp_path / folder), *arguments)
            process = forked(tmp_path / f"{folder}.txt", str(EXAMPLE), *told)
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
    said = (tmp_path / "killed.txt").read_text()
    assert "resuming after 100 steps" in said
    assert result(said) == result((tmp_path / "whole.txt").read_text())
