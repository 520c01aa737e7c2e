"""Each benchmark runs on a tiny problem and prints its table; no timing is asserted."""

from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.harness import alternate

__all__: list[str] = []

TINY = {
    "protocol": "--workers 4 8 --events 50 --messages 30 --rounds 1",
    "exchange": "--sizes-mb 1.5 --ways float32 shared-memory --rounds 1",
    "stall": "--params 100000 --ps 1 --step-s 0.002 --steps 5 --rounds 1 --rival-rounds 0",
    "straggler": "--peers 2 --slowdown 2 --step-s 0.005 --n-params 1000 --burst-s 0.1 --rounds 1",
    "node": "--params 10000 --steps 1 --rounds 1",
    "start": "--peers 1 --rounds 1",
    "topology": "--families ring random-matching --viewed 9 --rounds 1",
    "simulator": "--hidden 32 --workers 8 --steps 80 --rounds 1",
    "joining": "--joiners 1 --size-mb 1 --rounds 1",
    "soak": "--minutes 0.1 --peers 4 --every-s 1 --look-s 1",
    "gpu-copies": "--device cpu --copies-mb 1 --rounds 1",
    "gpu-workers": "--device cpu --simulated 8 --worker-steps 2 --rounds 1",
}
QUICK, SLOW = ("protocol", "gpu-copies"), ("straggler", "node", "start", "simulator", "joining")


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in QUICK else [pytest.mark.slow if name in SLOW else pytest.mark.extended]


@pytest.mark.live
@pytest.mark.parametrize("name", [pytest.param(each, marks=marks(each)) for each in TINY])
def test_a_benchmark_prints_its_table(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests must not download packages.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    page = tmp_path / "page.md"
    main([name, *TINY[name].split(), "--write", str(page)])
    assert page.read_text().split("\n\n", 2)[2].strip() in capsys.readouterr().out
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 2
    for row in rows[2:]:
        assert float(row[1].replace(",", "")) > 0 and float(row[2].replace(",", "")) > 0


def test_every_benchmark_is_tested() -> None:
    assert list(TINY) == list(BENCHMARKS)


def test_unknown_options_and_benchmarks_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["protocol", "--minutes", "3"], ["nothing"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    assert "unknown benchmarks: nothing" in capsys.readouterr().err


def test_variants_alternate_and_the_first_round_is_discarded() -> None:
    calls: list[str] = []

    def way(name: str) -> list[int]:
        calls.append(name)
        return [len(calls)]

    found = alternate({"a": lambda: way("a"), "b": lambda: way("b")}, rounds=2)
    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert found == {"a": [3, 5], "b": [4, 6]}
