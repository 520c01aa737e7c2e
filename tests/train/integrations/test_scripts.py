"""The example scripts for other trainers run and resume."""

from pathlib import Path

import pytest

from ...forked import forked
from ...waiting import LIMIT_S

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.live,
    pytest.mark.skipif(not EXAMPLES.exists(), reason="needs the examples"),
]


@pytest.mark.parametrize("library", ["accelerate", "lightning", "transformers"])
def test_a_script_trains_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    pytest.importorskip(library, reason=f"needs rumor[{library}]")
    monkeypatch.setenv("RUMOR_SEEK_S", "0.05")
    monkeypatch.setenv("RUMOR_FOUND_ALONE_S", "0.3")
    monkeypatch.setenv("RUMOR_LINGER_S", "1")
    script, log = EXAMPLES / f"train_{library}.py", tmp_path / "log.txt"
    for steps, more in ((50, ()), (60, ("--resume",))):
        options = ("--out", str(tmp_path / "out"), "--steps", str(steps), *more)
        process = forked(log, str(script), *options)
        assert process.wait(LIMIT_S) == 0, log.read_text()
        assert f"after {steps} steps" in log.read_text()
