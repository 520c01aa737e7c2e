"""Each benchmark runs on something tiny and prints its table; no timing is asserted."""

from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.harness import Result, Row, alternate, as_markdown
from benchmarks.live.joining import Wire, chain_s, tree_s, turns_s
from benchmarks.simulator import measured
from benchmarks.topology import dense
from rumor.topology import facts, parse

__all__: list[str] = []

TINY = {
    "protocol": "--peers 3 6 --workers 4 8 --events 50 --messages 30 --rounds 1",
    "exchange": "--sizes-mb 1.5 --ways float32 shared-memory --rounds 1",
    "stall": "--params 100000 --ps 1 --step-s 0.002 --steps 5 --rounds 1 --rival-rounds 0",
    "straggler": "--peers 2 --slowdown 2 --step-s 0.005 --n-params 1000 --burst-s 0.1 --rounds 1",
    "start": "--peers 1 --rounds 1",
    "topology": "--families ring random-matching --nodes 8 12 --viewed 9 --rounds 1",
    "simulator": "--hidden 32 --workers 8 --steps 80 --rounds 1",
    "joining": "--joiners 1 --size-mb 1 --rounds 1",
    "soak": "--minutes 0.1 --peers 4 --every-s 1 --look-s 1",
    "gpu-copies": "--device cpu --copies-mb 1 --rounds 1",
    "gpu-workers": "--device cpu --simulated 8 --worker-steps 2 --rounds 1",
}
QUICK, SLOW = ("protocol", "gpu-copies"), ("straggler", "start", "simulator", "joining")
DRAWN = ("joining", "soak")


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in QUICK else [pytest.mark.slow if name in SLOW else pytest.mark.extended]


@pytest.mark.live
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=marks(each)) for each in TINY],
)
def test_a_benchmark_prints_its_table(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is fetched for a test.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    page, picture = tmp_path / "page.md", tmp_path / "picture.png"
    drawn = ["--picture", str(picture)] if name in DRAWN else []
    main([name, *TINY[name].split(), *drawn, "--write", str(page)])
    assert f"\n{name}: " in capsys.readouterr().out
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 2
    for row in rows[2:]:
        assert float(row[1].replace(",", "")) > 0 and float(row[2].replace(",", "")) > 0
    assert not drawn or picture.read_bytes().startswith(b"\x89PNG")


def test_every_benchmark_is_run() -> None:
    assert list(TINY) == list(BENCHMARKS)


def test_an_option_that_no_named_benchmark_has_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["protocol", "--minutes", "3"], ["nothing"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    assert "unknown benchmarks: nothing" in capsys.readouterr().err


def test_ways_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []

    def way(name: str) -> list[int]:
        calls.append(name)
        return [len(calls)]

    found = alternate({"a": lambda: way("a"), "b": lambda: way("b")}, rounds=2)
    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert found == {"a": [3, 5], "b": [4, 6]}


def test_a_result_becomes_a_table() -> None:
    row = Row(name="a", ours=104776.4, reference=0.0, unit="s", note="none")
    result = Result(name="x", title="What", rows=(row,))
    assert as_markdown(result).splitlines()[-1] == "| a | 104,776 | 0 | 0.000 | s | none |"


def test_formulas_of_a_broadcast() -> None:
    wire, size_bytes = Wire(start_s=0.001, bytes_s=1e9), 10**8
    for formula in (chain_s, tree_s, turns_s):
        assert formula(2, size_bytes, wire) == pytest.approx(0.101)
    # C* = sqrt(7 * 0.1 / 0.001) = 26.5, so 26 chunks: (26 + 7) (0.001 + 0.1 / 26).
    assert chain_s(9, size_bytes, wire) == pytest.approx(33 * (0.001 + 0.1 / 26))
    assert tree_s(5, size_bytes, wire) == tree_s(8, size_bytes, wire) == pytest.approx(0.303)
    assert turns_s(9, size_bytes, wire) == pytest.approx(0.808)


@pytest.mark.parametrize(
    "spec",
    [
        *("ring", "torus", "exponential", "one-peer-exponential", "grid", "tree"),
        *("random-regular:d=4", "small-world", "scale-free"),
    ],
)
def test_facts_and_the_dense_solver_find_the_same(spec: str) -> None:
    topology = parse(spec, 24)
    found = facts(topology)
    graphs = [topology.graph(round) for round in range(topology.period or 1)]
    diameter, contraction = dense(graphs)
    assert diameter == found.diameter
    assert contraction == pytest.approx(found.contraction, abs=1e-9)


def test_a_longer_run_is_timed_and_the_digest_is_of_the_one_that_was_asked_for() -> None:
    short, long, loop = (
        measured(hidden=32, workers=8, steps=4, engine=engine, threads=1, longer=longer)
        for engine, longer in (("dense", 1), ("dense", 3), ("loop", 1))
    )
    assert short["digest"] == long["digest"] != loop["digest"]
    assert short["accuracy"] == long["accuracy"]
