"""The display of a running launch."""

import io
from typing import Any

import pytest
from rich.console import Console

from rumor.cli.launch.display import complaint, display_on, end, render, report, summarize
from rumor.cli.launch.monitor import PeerView, State
from rumor.cli.reports.console import LINE_EVERY_S

from .fakes import detail, summary


def text_of(views: list[PeerView], height: int = 1000) -> str:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(render("digits on 2 peers", views, 12.3, height))
    return console.export_text()


def test_a_row_shows_the_progress_of_its_peer() -> None:
    training = PeerView("peer-0", 500, State.TRAINING, 120)
    training.take({"loss": 0.25, "accuracy": 0.9, "step_s": 0.02, "weight": 1.5, "live": 2})
    text = text_of([training, PeerView("peer-1", 500)])
    assert "digits on 2 peers   12 s" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("peer-0")]
    assert [cell for cell in row if "━" not in cell and "╸" not in cell and "╺" not in cell] == [
        "peer-0",
        "training",
        "120/500",
        "50.0",
        "0.2500",
        "0.9000",
        "1.5000",
        "0",
        "2",
    ]
    assert "peer-1" in text and "starting" in text


def test_a_small_terminal_shows_some_peers_and_counts_the_rest() -> None:
    text = text_of([PeerView(f"peer-{index}", 500) for index in range(40)], height=16)
    assert "peer-9" in text and "peer-10" not in text
    assert "and 30 more peers" in text


def test_the_display_reports_that_all_steps_are_taken() -> None:
    done = PeerView("peer-0", 5, State.FINISHED, 5)
    assert "all steps are taken" in text_of([done])
    assert "all steps" not in text_of([done, PeerView("peer-1", 5, State.TRAINING, 2)])


def test_a_line_summarizes_the_training_peers() -> None:
    views = [
        PeerView("peer-0", 500, State.TRAINING, 100, loss=0.2, accuracy=0.9),
        PeerView("peer-1", 500, State.TRAINING, 140, loss=0.4, accuracy=0.8),
        PeerView("peer-2", 500, State.KILLED, 20, loss=9.0),
    ]
    assert summarize(views) == (
        "step 100 to 140 of 500, loss 0.300, accuracy 0.850, 2 training, 1 killed"
    )


def test_plain_lines_appear_occasionally_and_news_at_once() -> None:
    stream = io.StringIO()
    views = [PeerView("peer-0", 500)]
    with display_on(stream, "title") as show:
        for tenth in range(int(25 * LINE_EVERY_S)):
            show(views, ["it died"] if tenth == 7 else [], tenth / 10)
    written = stream.getvalue().splitlines()
    assert written[:2] == ["title", "it died"]
    assert len(written) == 4 and all(line.startswith(("5 s", "10 s")) for line in written[2:])


def test_a_terminal_gets_a_table_with_the_news_above_it() -> None:
    stream = Terminal()
    with display_on(stream, "title") as show:
        show([PeerView("peer-0", 500)], ["peer-0 left at step 3"], 1.0)
    written = stream.getvalue()
    assert "peer-0 left at step 3" in written and "starting" in written


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


DEAD = {"id": "peer-1", "why": "SIGKILL", "state": "killed", "step": 120, "life": 1}


def report_text_of(**changes: Any) -> str:
    console = Console(file=io.StringIO(), width=100, record=True)
    report(summary(**changes), console)
    return console.export_text()


DIED = "peer-1 killed at step 120 (SIGKILL); a weight of 0.5000 died with it"
UNSEEN = {"state": None, "why": "", "step": None, "life": 1, "weight": 0.5, "weight_units": 7}
FAILED = {"state": "failed", "why": "the loss is nan", "weight": 0.0, "weight_units": 0}
LATE = {"complete": False, "unfinished": {"peer-0": 500}, "missing": {}, "distance": None}
EARLY = "peer-1 ended before its model was the average, without peer-0."
NO_MODEL = dict.fromkeys(("digest", "accuracy", "loss", "consensus_distance"))


@pytest.mark.parametrize(
    ("changes", "present", "absent"),
    [
        (
            {},
            [
                "accuracy 0.9600 and loss 0.15 on held-out data",
                "differ by 0.01 of their norm",
                "runs/x/training.png",
                "runs/x/model.safetensors",
                "Weight is exact: 2199023255552 units",
            ],
            ["ended before"],
        ),
        ({"consensus_distance": 0.002}, ["more than the 0.001"], []),
        ({"consensus_distance": 0.0009}, [], ["more than"]),
        ({"consensus_distance": 0.0}, ["are identical"], []),
        ({"dead": [DEAD | {"weight": 0.5, "weight_units": 2**39}]}, [DIED], []),
        ({"peers_detail": [detail(0), detail(1, merge=LATE)]}, [EARLY], []),
        ({"peers_detail": [detail(0), detail(1, state="killed", accuracy=None)]}, ["killed"], []),
        # Its end was not observed, so no signal is named.
        ({"dead": [DEAD | UNSEEN]}, ["was started again after incarnation 1; a weight of 0.5"], []),
        ({"unwritten": ["training.png (full)"]}, ["runs/x/model.safetensors"], ["training.png"]),
        ({"dead": [DEAD | FAILED]}, ["failed at step 120 (the loss is nan); a weight of 0.0"], []),
        ({"weight_units_total": 5}, ["WEIGHT IS NOT EXACT"], []),
        (NO_MODEL, ["so nothing was merged", "log.txt"], ["training.png"]),
        ({"accuracy": None}, ["has loss 0.15 on held-out"], []),
    ],
)
def test_a_report_shows_the_merged_model_and_failures(
    changes: dict[str, Any], present: list[str], absent: list[str]
) -> None:
    text = report_text_of(**changes)
    assert [words for words in present if words not in text] == []
    assert [words for words in absent if words in text] == []
    head = text.split("peer-0")[0]
    # Peers' own figures are labeled as reported: they are not those of the merged model.
    assert head.count("reported") == 2 and "accuracy" in head


def test_a_script_failure_after_training_is_reported() -> None:
    result = summary(peers_detail=[detail(0, script_error="RuntimeError: no room"), detail(1)])
    why = "peer-0 trained, and then the script failed: RuntimeError: no room"
    assert complaint(result) == why


def test_peers_of_two_swarms_are_named() -> None:
    result = summary(swarms=[["peer-0"], ["peer-1"]], digest=None)
    assert "several swarms, so they have no merged model" in report_text_of(**result)
    why = complaint(result)
    assert "2 swarms" in why and "peer-0; peer-1" in why
    assert "`rumor merge`" in why


def test_processes_left_by_scripts_are_reported_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = ["sleep (process 7) of peer-0"]
    peers = [detail(0, script_error="")]
    result = summary(run="runs/x", further={}, peers_detail=peers, leftovers=left)
    end(result, as_json=False)
    assert f"Still running, started by scripts: {left[0]}." in capsys.readouterr().out
