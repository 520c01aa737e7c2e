"""``rumor simulate``: its errors, its output, the files it keeps, and how it ends."""

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rumor.sim
from rumor.cli.reports.simulation import display_on, part, reached, time_left
from rumor.gossip.errors import ConfigError
from rumor.sim import SimulationConfig
from rumor.sim.batched.schedule import Cost, Progress
from rumor.sim.results.figures import describe_cost, describe_run
from rumor.sim.results.run import Run
from rumor.sim.storm import STORMS

from ...sim.made_up import made_up
from ..called import called

pytestmark = pytest.mark.usefixtures("in_empty_folder")


def simulate(*arguments: str) -> Any:
    return called("simulate", *arguments)


class Fake:
    """Replaces the simulation: reports progress and returns a made-up run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[SimulationConfig] = []
        self.run = made_up(points=5)
        self.updates = [Progress(100, 400, 2.0, 6.0, 0.5, 0.8)]
        self.error: BaseException | None = None
        monkeypatch.setattr(rumor.sim, "simulate", self)

    def __call__(self, config: SimulationConfig, *, progress: Callable[[Progress], None]) -> Run:
        self.requests.append(config)
        for one in self.updates:
            progress(one)
        if self.error is not None:
            raise self.error
        return self.run


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(monkeypatch)


def rows(**changes: Any) -> dict[str, tuple[str, str]]:
    run = made_up(**changes)
    return {name: (value, words) for name, value, words in describe_run(run.summary)}


def test_storms_are_listed(fake: Fake) -> None:
    done = simulate("--storm", "list")
    assert done.exit_code == 0 and not fake.requests
    assert all(f"{name} " in done.stdout for name in STORMS)


def test_settings_match_those_of_the_python_function(fake: Fake) -> None:
    assert simulate("--set=plot=false").exit_code == 0
    assert fake.requests == [SimulationConfig()]


@pytest.mark.extended
def test_a_run_ends_with_a_table_and_a_folder(fake: Fake, tmp_path: Path) -> None:
    result = simulate("--out", "run")
    assert result.exit_code == 0
    for words in ("accuracy", "exact", "virtual time", "0.9 after", "dense", "Folder: run"):
        assert words in result.stdout
    assert Run.load(tmp_path / "run").summary == fake.run.summary
    assert (tmp_path / "run" / "training.png").exists()


def test_json_is_the_only_line_on_stdout(fake: Fake) -> None:
    result = simulate("--json", "--out", "run", "--set=plot=false")
    (line,) = result.stdout.splitlines()
    assert json.loads(line) == {**fake.run.summary, "out": "run"}
    first, second = result.stderr.splitlines()
    assert first == "digits on 64 workers, exponential, gosgd"
    assert second == (
        "6 s: step 100 of 400, virtual time 2 s, about 18 s left, loss 0.500, accuracy 0.800"
    )
    assert not Path("run/training.png").exists()


def test_a_config_error_takes_one_or_two_lines(fake: Fake) -> None:
    fake.updates, fake.error = [], ConfigError("this needs 90 GiB and 8 GiB are free:\ntake fewer")
    result = simulate()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("error: this needs 90 GiB and 8 GiB are free:\ntake fewer\n")
    assert not Path("runs").exists()
    assert isinstance(simulate("--debug").exception, ConfigError)


def test_ctrl_c_and_sigterm_keep_nothing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(config: SimulationConfig, **_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(rumor.sim, "simulate", terminated)
        assert simulate().exit_code == 130
    fake.error = KeyboardInterrupt()
    result = simulate("--json")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.endswith("error: stopped; nothing was kept\n")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "while the files were written"),
        (OSError(28, "No space"), 1, "error: run cannot be written: No space; no file was kept\n"),
    ],
)
def test_a_run_that_cannot_be_written_is_still_shown(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, message: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("rumor.sim.results.run.save_model", fail)
    result = simulate("--out", "run", "--set=plot=false", "--json")
    assert result.exit_code == status and message in result.stderr and not Path("run").exists()
    assert status == 130 or json.loads(result.stdout)["out"] is None


def test_a_run_that_lost_weight_fails_and_is_kept(fake: Fake) -> None:
    fake.run = made_up(points=3, weight_units_total=5)
    result = simulate("--out", "run", "--set=plot=false")
    assert result.exit_code == 1
    assert "NOT EXACT" in result.stdout and "do not balance" in result.stderr
    assert Path("run/summary.json").exists()


def test_the_table_shows_when_each_accuracy_was_reached() -> None:
    assert rows()["reached after"] == (
        "6 s",
        "to accuracy 0.95; 0.5 after 1 s, 0.9 after 4 s; 0.99 never",
    )
    assert rows(time_to={"0.5": 1.0})["reached after"] == ("1 s", "to accuracy 0.5")
    assert "reached after" not in rows(time_to={"0.5": None})


def test_figures_that_a_run_lacks_have_no_row() -> None:
    noise = rows(task="noise")
    assert not {"accuracy", "loss", "reached after"} & set(noise)
    assert (noise["disagreement"][0], noise["stationary"][0]) == ("3", "3.1")
    assert "stationary" not in rows(task="consensus")
    assert "consensus distance" not in rows(workers=1)
    bare = rows(staleness_steps=None, idle=None, consensus_distance=None, time_to=None)
    assert not {"staleness", "idle", "consensus distance", "reached after"} & set(bare)
    assert rows(accuracy=None)["loss"][1] == "of the merged model, on held-out data"
    assert rows(loss=None)["loss"][0] == "not finite"


def test_special_values_have_their_own_wording() -> None:
    assert "device" not in rows(device="cpu") and rows(device="cuda:0")["device"][0] == "cuda:0"
    assert rows(idle=0.0)["idle"] == ("0 %", "no worker ever waits")
    assert rows(consensus_distance=0.0)["consensus distance"] == ("0", "all alike")
    still = rows(virtual_time_s=0.0, bytes_sent=0, peak_rss_mib=None)
    assert still["messages"][1] == "0 B" and "MiB" not in still["steps/s"][1]


@pytest.mark.parametrize(
    ("progress", "time_s", "done", "left"),
    [
        (Progress(100, 400, 2.0, 6.0, None, None), None, 0.25, ["about 18 s left"]),
        (Progress(100, None, 2.0, 6.0, None, None), 3.0, 2 / 3, ["about 3 s left"]),
        (Progress(100, None, 4.0, 6.0, None, None), 3.0, 1.0, []),
        (Progress(0, 400, 0.0, 6.0, None, None), None, 0.0, []),
        (Progress(100, 400, 2.0, 0.5, None, None), None, 0.25, []),
        (Progress(100, None, 2.0, 6.0, None, None), None, None, []),
    ],
)
def test_the_remaining_time_is_estimated_from_progress(
    progress: Progress, time_s: float | None, done: float | None, left: list[str]
) -> None:
    assert part(progress, time_s) == done
    assert time_left(part(progress, time_s), progress.wall_s) == left


def test_progress_reports_the_start_and_extra_steps() -> None:
    assert reached(Progress(0, 400, 0.0, 1.0, None, None)) == "starting"
    words = "step 405 (400 planned), virtual time 2.5 s"
    assert reached(Progress(405, 400, 2.5, 1.0, None, None)) == words
    assert reached(Progress(400, 400, 2.5, 1.0, None, None)).startswith("step 400 of 400,")


def test_compilation_in_the_first_run_is_announced_at_once() -> None:
    stream = io.StringIO()
    with display_on(stream, "digits on 4 workers") as show:
        show(Progress(0, 400, 0.0, 0.0, None, None, compiles=True))
        lines = stream.getvalue().splitlines()
    assert lines[1:] == ["compiling once for later runs, then trying a few steps"]


def test_a_real_run_has_the_documented_keys_and_can_be_loaded() -> None:
    words = "--task quadratic -n 4 --steps 40 --set p=0.5 --set eval_every=10 --topology ring"
    result = simulate(*words.split(), "--out", "run", "--json", "--set=plot=false")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    documented = {name for name, value in made_up().summary.items() if value is not None}
    assert {*summary} >= documented | {"peers", "out"}
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 4 * 2**40
    assert (summary["workers"], summary["steps"]) == (4, 160)
    run = Run.load("run")
    assert {**run.summary, "out": "run"} == summary
    assert run.series["loss"][-1] == summary["loss"] < run.series["loss"][0]
    assert run.model is not None and run.workers["steps"].tolist() == [40] * 4


MODEL = """
import torch
from torch import nn
train = torch.eye(4)[:, :3].repeat(5, 1), torch.arange(4).repeat(5)
test = train
def make():
    return nn.Linear(3, 4)
def wrong():
    return nn.LSTM(3, 4)
"""


@pytest.fixture
def own_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("mynet.py").write_text(MODEL)
    yield
    sys.modules.pop("mynet", None)


def test_a_model_in_a_file_can_be_simulated(own_model: None) -> None:
    result = simulate("mynet.py:make", "-n", "3", "--steps", "4", "--json", "--set=plot=false")
    assert result.exit_code == 0, result.stderr
    assert "make on 3 workers" in result.stderr
    assert "GiB; 12 steps at " in result.stderr and "engine dense" in result.stderr
    summary = json.loads(result.stdout)
    assert (summary["task"], summary["optimizer"], summary["lr"]) == ("mynet.py:make", "SGD", 0.01)
    assert summary["accuracy"] is not None
    python = rumor.sim.simulate(task="mynet.py:make", workers=3, steps=4)
    assert python.summary["digest"] == summary["digest"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["mynet.py:wrong"], 1, "gave a tuple of 2, and the loss raised TypeError: cross_entropy"),
        (["mynet.py:mak"], 2, "has no function or class 'mak'; it has make, wrong"),
        (["mynet.py"], 2, "or FILE.py:FUNCTION"),
        (["mynet.py:make", "--task", "digits"], 2, "are both given: give one"),
    ],
)
def test_an_invalid_model_is_reported_in_one_or_two_lines(
    own_model: None, arguments: list[str], status: int, message: str
) -> None:
    result = simulate(*arguments, "-n", "2", "--steps", "2")
    error = result.stderr[result.stderr.index("error: ") :]
    assert (result.exit_code, result.stdout) == (status, "") and message in error
    assert error.count("\n") <= 2


def test_the_estimated_cost_of_a_run_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    cost = Cost(
        steps=60_000,
        steps_per_s=100.0,
        measuring_s=0.0,
        memory_gib=0.71,
        engine="loop",
        engine_why="asked for",
    )
    description = "about 10 min and 0.7 GiB; 60,000 steps at 100 a second; engine loop (asked for)"
    assert describe_cost(cost) == description
    assert "measurements take 2.2 h of it, less with eval_every, tested" in describe_cost(
        replace(cost, measuring_s=8000.0)
    )
    with display_on(sys.stderr, "mine") as show:
        show(Progress(0, 60_000, 0.0, 0.0, None, None, cost=cost))
    assert description in capsys.readouterr().err


def test_a_run_reserves_its_own_new_folder_from_the_start(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rumor.cli.run_folder.time.strftime", lambda form: "now")
    seen: list[list[str]] = []
    run, arguments = fake.run, ("--task=my.tasks:make", "--set=plot=false")

    def another_starts(config: SimulationConfig, *, progress: object, **_: object) -> Run:
        seen.append(sorted(path.name for path in Path("runs").iterdir()))
        if len(seen) == 1:
            assert simulate(*arguments).exit_code == 0
        return run

    monkeypatch.setattr(rumor.sim, "simulate", another_starts)
    assert simulate(*arguments).exit_code == 0
    first = "sim-my.tasks-make-now"
    assert seen == [[first], [first, f"{first}-2"]]
    assert all((Path("runs") / name / "summary.json").exists() for name in seen[1])
