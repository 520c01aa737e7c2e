"""The page of figures from a GPU: written from canned measurements, refused without a GPU."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

from rumor.benchmarks import Result, Row

from .test_docs import script

SCRIPT = Path(__file__).parents[1] / "docs" / "scripts" / "gpu.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="docs are not beside the tests")

COPIES = Result(
    name="copies",
    title="Between device and host",
    rows=(
        Row(name="400 MB, leaving", ours=31.2, reference=52.0, unit="GB/s", note="copy_"),
        Row(name="400 MB, mixing", ours=2100.0, reference=3000.0, unit="GB/s", note="copy_"),
    ),
    machine="a machine",
)


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    return script("gpu")


def test_the_page_shows_aims_beside_what_was_measured(gpu: ModuleType) -> None:
    lines = gpu.page("a card", "6 passed", [COPIES]).splitlines()
    assert "- GPU: a card." in lines and "- Tests that need a GPU: 6 passed" in lines
    assert "| copies: 400 MB, leaving | 20 GB/s | 31.2 | reached |" in lines
    assert "| copies: 400 MB, mixing | 0.8 of the reference | 0.7 | not reached |" in lines
    assert "| stall: 100 M, p = 0.1: kept | 0.98 of the reference | | not measured |" in lines
    assert "| 400 MB, leaving | 31.2 | 52 | 0.600 | GB/s | copy_ |" in lines


def test_what_could_be_measured_is_on_the_page_though_a_part_or_a_test_fails(
    gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    parts = {
        "exchange": lambda: gpu.Failure(name="exchange", why="CUDA error: out of memory"),
        "copies": lambda: COPIES,
    }
    assert not gpu.write(page, "a card", lambda: (True, "6 passed"), parts)
    text = page.read_text()
    assert "Not measured: `CUDA error: out of memory`" in text and "## copies" in text
    assert "exchange: CUDA error: out of memory" in capsys.readouterr().err
    only = {"copies": parts["copies"]}
    assert gpu.write(page, "a card", lambda: (True, "6 passed"), only)
    assert not gpu.write(page, "a card", lambda: (False, "1 failed"), only)
    assert "1 failed" in page.read_text()


def test_a_part_is_printed_and_read_again(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def measured(device: str) -> Result:
        asked.append(device)
        return COPIES

    monkeypatch.setattr(gpu, "PARTS", {"copies": measured})
    gpu.main(["copies", "cpu"])
    assert gpu.read("a warning\n" + capsys.readouterr().out) == COPIES
    assert asked == ["cpu"]


@pytest.mark.extended
def test_a_part_that_fails_says_why_in_a_process_of_its_own(gpu: ModuleType) -> None:
    assert gpu.measure("nothing", "cpu") == gpu.Failure(name="nothing", why="KeyError: 'nothing'")


def test_without_a_gpu_there_is_one_line_and_status_2(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"make gpu needs a CUDA device: torch {torch.__version__} finds none"
    ]
