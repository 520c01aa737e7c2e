"""``rumor demo``: figures of rumor and all-reduce, and a short run of real processes."""

import io
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rumor.cli.demo.pictures import draw, screen_of
from rumor.cli.demo.story import Story

from ...forked import forked
from ...waiting import until
from ..called import called

PHASES = {"all well": 0.0, "one killed": 4.0}


@pytest.fixture
def story() -> Story:
    """Two peers at one and two steps per second, and a process that stops after 4 s."""
    story = Story(PHASES, 8.0, began_unix_s=100.0)
    for half_s in range(1, 17):
        row = {"unix_s": 100 + half_s / 2, "step": half_s}
        story.take("peer-1", row)
        if half_s % 2 == 0:
            story.take("peer-0", row | {"test_loss": 4 - half_s / 8})
        if half_s <= 8:
            story.take("rank-0", row | {"test_loss": 3.0})
    return story


def test_speeds_and_losses_cover_all_processes_of_a_method(story: Story) -> None:
    rumor, allreduce = story.figures("rumor"), story.figures("all-reduce")
    assert rumor["steps_per_s"]["one killed"] == pytest.approx(3.0)
    assert rumor["loss"] == {"all well": 3.0, "one killed": 2.0}
    assert rumor["pause_s"] == pytest.approx(0.5)
    assert allreduce["steps_per_s"]["one killed"] == 0.0
    assert allreduce["loss"] == {"all well": 3.0, "one killed": 3.0}
    assert allreduce["pause_s"] == pytest.approx(4.0)


def test_a_step_across_a_boundary_counts_in_part_on_both_sides(story: Story) -> None:
    assert story.speeds("peer-0", np.array([1.0, 1.5, 2.0])) == pytest.approx([1.0, 1.0])


def test_a_method_that_has_not_begun_has_no_figures() -> None:
    figures = Story(PHASES, 8.0).figures("rumor")
    assert figures["loss"] == {"all well": None, "one killed": None}
    assert figures["steps_per_s"] == {"all well": 0.0, "one killed": 0.0}
    assert figures["pause_s"] == 8.0


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_has_a_line_for_each_process_and_both_curves(story: Story, width: int) -> None:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(screen_of(story, ["4.0 s rank-1 killed"], 8.0, width))
    lines = console.export_text().splitlines()
    speeds = {line.split()[-3]: line.split()[-1] for line in lines if "▄" in line or "█" in line}
    assert speeds == {"peer-0": "1.0", "peer-1": "2.0", "rank-0": "0.0"}
    assert any("4.0 s rank-1 killed" in line for line in lines)
    chart = lines[-8:]
    # Only the lower curve reaches the last line; the other one stays in the first half.
    assert "•" in chart[-1] and "×" not in chart[-1]
    assert max(line.rfind("×") for line in chart) < max(line.rfind("•") for line in chart)


def test_a_screen_without_any_row_can_be_drawn() -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(screen_of(Story(PHASES, 8.0), [], 0.0, 80))
    assert "all processes start" in console.export_text()


@pytest.mark.extended
def test_the_picture_is_drawn_even_if_a_method_has_no_rows(story: Story, tmp_path: Path) -> None:
    for part in (story, Story(PHASES, 8.0, {"peer-0": story.rows["peer-0"]}, 100.0)):
        draw(part, "A race", tmp_path / "race.png")
        assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.extended
@pytest.mark.live
def test_both_methods_survive_all_faults_and_weight_is_exact(tmp_path: Path) -> None:
    result = called("demo", "--seconds=12", f"--out={tmp_path / 'run'}", "--json", status=0)
    summary = json.loads(result.stdout)
    swarm = summary["swarm"]
    assert swarm["weight_units_total"] == swarm["weight_units_expected"]
    assert [peer["state"] for peer in swarm["peers_detail"]] == ["left"] * 5
    assert [peer["lives"] for peer in swarm["peers_detail"]] == [1, 2, 1, 1, 1]
    # All-reduce was down completely and has restarted.
    actions = [each["what"] for fault in summary["faults"] for each in fault["done"]]
    assert {f"rank-{n} restarts from its last checkpoint" for n in range(4)} <= {*actions}
    assert all(speed > 0 for speed in summary["rumor"]["steps_per_s"].values())
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"rumor", "all-reduce", "summary.json", "demo.png"}


@pytest.mark.extended
@pytest.mark.live
def test_a_stopped_demo_ends_all_processes_and_fails(tmp_path: Path) -> None:
    log, ranks = tmp_path / "log.txt", tmp_path / "run" / "all-reduce"
    demo = forked(log, "rumor", "demo", f"--out={tmp_path / 'run'}")
    until((ranks / "rank-0" / "metrics.jsonl").exists)
    demo.send_signal(signal.SIGINT)
    assert demo.wait() == 1
    assert log.read_text().endswith("error: stopped before the end\n")
    assert all(not is_running(int(path.read_text())) for path in ranks.glob("*/pid"))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
