"""The example of a loop that goes on where it stood, killed on the way."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "resume.py"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not EXAMPLE.exists(), reason="examples are not beside the tests"),
]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts the script in a folder; what still runs at the end is killed."""
    processes = []

    def start(folder: str, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(EXAMPLE), "--steps", "400", "--folder", folder, *arguments]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def result(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it says at its end of its accuracy, and all it says."""
    said, _ = process.communicate(timeout=150)
    found = re.search(r"accuracy [\d.]+ on held-out digits after 400 steps", said)
    assert found, said
    return found[0], said


def test_killed_and_started_again_it_ends_as_if_nothing_had_been(
    start: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    whole = start("whole")
    first = start("killed", "--pace-s", "0.01")
    while not list((tmp_path / "killed").glob("checkpoint-000001.safetensors")):
        assert first.poll() is None
        time.sleep(0.05)
    first.kill()
    first.communicate()
    again, said = result(start("killed"))
    assert "going on after 100 steps" in said
    assert again == result(whole)[0]
