"""The first scripts and texts that a reader sees work as described."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .forked import forked
from .waiting import LIMIT_S

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.skipif(
    not EXAMPLES.exists(), reason="examples and README are not next to the tests"
)


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    # As for a user: no path of the checkout. One thread.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that runs in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@contextmanager
def running(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    with start(*arguments, cwd=cwd) as process:
        try:
            yield process
        finally:
            process.kill()


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_docs_show_the_academic_script() -> None:
    script = (EXAMPLES / "academic.py").read_text()
    body = script.split('"""\n\n', 1)[1]
    assert body in code_blocks(
        (ROOT / "docs" / "explanation" / "algorithm.md").read_text(), "python"
    )


def test_the_academic_version_keeps_all_weight_and_learns_faster(tmp_path: Path) -> None:
    out, errors = start(str(EXAMPLES / "academic.py"), cwd=tmp_path).communicate(timeout=LIMIT_S)
    assert "total weight 8.0: nothing is lost" in out, errors
    alone, together = map(float, re.findall(r"(?:alone|together) +([\d.]+)", out))
    assert together < alone / 3


@pytest.mark.extended
@pytest.mark.live
def test_two_processes_train_together_through_one_address(tmp_path: Path) -> None:
    """Run a user's script, train.py, twice."""
    script = (EXAMPLES / "train.py").read_text()
    changes = {
        # The first peer never ends, so the second would wait for it in vain.
        "import Peer\n": "import Peer, PeerConfig\n",
        "Peer(model, ": "Peer(model, PeerConfig(linger_s=0.5), ",
        # Without a pause, steps would keep a core busy until the second peer has started.
        "peer.step(loss=loss)": "peer.step(loss=loss); import time; time.sleep(0.01)",
    }
    for old, new in changes.items():
        assert script.count(old) == 1
        script = script.replace(old, new)
    (tmp_path / "train.py").write_text(script)
    with running("train.py", "--steps", "100000000", cwd=tmp_path) as first:
        assert first.stdout is not None
        line = first.stdout.readline()
        found = re.search(r"at (tcp://\S+),", line)
        assert found, line
        log = tmp_path / "second.txt"
        second = forked(log, str(tmp_path / "train.py"), "--steps", "200", "--join", found[1])
        second.wait()
        first.send_signal(signal.SIGINT)
        first_out, first_errors = first.communicate(timeout=LIMIT_S)
    for out, errors in ((first_out, first_errors), (log.read_text(), "")):
        accuracy, mixed = re.findall(r"accuracy ([\d.]+).*mixed in: (\d+)", out)[0]
        assert float(accuracy) >= 0.9, out + errors
        assert int(mixed) > 0, out + errors
