"""Delivery of rows to loggers, none of which can stop a run."""

import threading

import pytest

from rumor.train.loggers import LoggedRun
from rumor.train.loggers.writer import LogWriter

from ...waiting import LIMIT_S
from .fakes import Collected, Failing, Stuck

RUN = LoggedRun(name="first", config={"seed": 3})


def test_each_logger_gets_all_rows_in_order_on_its_own_thread() -> None:
    several = [Collected(), Collected()]
    writer = LogWriter([("a", several[0]), ("b", several[1])])
    writer.open(RUN)
    for step in range(50):
        writer.log(f"peer-{step % 2}", {"step": step, "swarm_steps": 2 * step})
    writer.close({"loss": 0.5})
    for logger in several:
        assert logger.run is RUN and logger.summaries == [{"loss": 0.5}]
        assert [row[:2] for row in logger.rows] == [(f"peer-{k % 2}", 2 * k) for k in range(50)]
        assert len(logger.threads) == 1 and threading.get_ident() not in logger.threads
    assert several[0].threads != several[1].threads


def test_nothing_is_logged_before_or_after_the_run() -> None:
    logger = Collected()
    writer = LogWriter([("a", logger)])
    writer.log("p", {"step": 1})
    writer.close({})
    assert logger.run is None
    writer.open(RUN)
    writer.close({"loss": 1})
    writer.log("p", {"step": 2})
    writer.close({"loss": 2})
    assert logger.run is RUN and (logger.rows, logger.summaries) == ([], [{"loss": 1}])


def test_rows_for_a_slow_logger_are_dropped_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stuck, quick = Stuck(), Collected()
    writer = LogWriter([("stuck", stuck), ("quick", quick)], rows_max=2)
    writer.open(RUN)
    writer.log("p", {"swarm_steps": 0})
    assert stuck.entered.wait(LIMIT_S)
    for step in range(1, 8):
        writer.log("p", {"swarm_steps": step})
    stuck.may_go.set()
    writer.close({})
    assert [x for _, x, _ in stuck.rows] == [0, 1, 2]
    slow = [message for message in caplog.messages if "stuck" in message]
    assert slow == ["logger stuck was too slow: it missed 5 rows"]


def test_close_waits_for_a_hanging_logger_no_longer_than_its_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stuck = Stuck()
    writer = LogWriter([("stuck", stuck)])
    writer.open(RUN)
    writer.log("p", {})
    assert stuck.entered.wait(LIMIT_S)
    (thread,) = (each for each in threading.enumerate() if each.name == "rumor-logger-stuck")
    writer.close({}, timeout_s=0.0)
    assert "logger stuck was not done after 0 s" in caplog.text
    stuck.may_go.set()
    thread.join(LIMIT_S)
    assert stuck.summaries == [{}]


@pytest.mark.parametrize(
    ("at", "taken", "closed", "words"),
    [
        (("open",), 0, 0, "gets no rows; all else goes on: no open"),
        (("log",), 0, 1, "may miss rows; all else goes on: no log"),
        (("close",), 3, 0, "may miss rows; all else goes on: no close"),
        (("log", "close"), 0, 0, "may miss rows; all else goes on: no log"),
    ],
)
def test_a_failing_logger_causes_one_warning(
    caplog: pytest.LogCaptureFixture, at: tuple[str, ...], taken: int, closed: int, words: str
) -> None:
    failing, other = Failing(*at), Collected()
    writer = LogWriter([("failing", failing), ("other", other)])
    writer.open(RUN)
    for step in range(3):
        writer.log("p", {"swarm_steps": step})
    writer.close({})
    assert caplog.messages == [f"logger failing failed and {words}"]
    assert (len(failing.rows), len(failing.summaries)) == (taken, closed)
    assert (len(other.rows), len(other.summaries)) == (3, 1)
