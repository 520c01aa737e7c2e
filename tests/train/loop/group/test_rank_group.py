"""A leader keeps the other processes of a peer in step; here, threads act as processes."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import Pipe
from typing import Any

import pytest

from rumor.gossip import TrainingError
from rumor.train.loop.group.rank_group import RankGroup

from ....waiting import LIMIT_S, until

# Long enough to be written to a pipe in parts.
LONG = 1 << 17


def echo(rank: int, content: str) -> str:
    return f"{rank}{content}"


class Group:
    """A leader, and followers that make calls on threads of their own."""

    def __init__(self, size: int, threads: ThreadPoolExecutor) -> None:
        pipes = [Pipe() for _ in range(size - 1)]
        self.leader = RankGroup(0, size, [ours for ours, _ in pipes])
        self.followers = [RankGroup(n, size, [pipes[n - 1][1]]) for n in range(1, size)]
        self.failed = threading.Event()
        self.leader.on_failure = self.failed.set
        self._threads = threads
        for each in (self.leader, *self.followers):
            each.handlers["echo"] = partial(echo, each.rank)

    def follow(self, *names: str) -> list[Future[list[Any]]]:
        """Let all followers make some calls, one after another."""

        def make(each: RankGroup) -> list[Any]:
            return [each.call(name, lambda: pytest.fail("a follower ran")) for name in names]

        return [self._threads.submit(make, each) for each in self.followers]

    def close(self) -> None:
        for each in (*self.followers, self.leader):
            each.close()


@pytest.fixture
def make_group() -> Iterator[Callable[..., Group]]:
    groups: list[Group] = []
    with ThreadPoolExecutor(8) as threads:

        def make(size: int = 2) -> Group:
            groups.append(Group(size, threads))
            return groups[-1]

        yield make
        for each in groups:
            each.close()


@contextmanager
def expect_error(error: str, *futures: Future[Any]) -> Iterator[None]:
    """Expect an error of the leader in the block, and of followers."""
    with pytest.raises(TrainingError, match=error):
        yield
    for each in futures:
        with pytest.raises(TrainingError, match=error):
            each.result(LIMIT_S)


@pytest.mark.parametrize("length", [1, LONG])
def test_all_ranks_execute_commands_and_get_the_result_of_a_call(
    make_group: Callable[..., Group], length: int
) -> None:
    group, content = make_group(3), "x" * length
    following = group.follow("one", "two", "step")
    found = group.leader.call("one", lambda: group.leader.ask("echo", content, own="own"))
    assert found == ["0own", f"1{content}", f"2{content}"]
    # An inner call of the leader is a part of the outer one.
    inner = group.leader.call("two", lambda: group.leader.call("inner", lambda: 3))
    assert inner == 3
    assert group.leader.call("step", lambda: 4, lambda result: -result) == 4
    assert [each.result(LIMIT_S) for each in following] == [[found, 3, -4]] * 2


def test_a_late_follower_misses_no_call(make_group: Callable[..., Group]) -> None:
    group = make_group()
    for number in range(5):
        group.leader.call(f"{number}", partial(int, number))
    (following,) = group.follow(*"01234", "last")
    group.leader.call("last", lambda: group.leader.ask("echo", "!"))
    assert following.result(LIMIT_S) == [*range(5), ["0!", "1!"]]


def test_all_ranks_read_model_changes_at_the_end_of_a_call(
    make_group: Callable[..., Group],
) -> None:
    group, read = make_group(), list[int]()
    for each in (group.leader, *group.followers):
        each.handlers["read"] = partial(lambda rank, _: read.append(rank), each.rank)
    version = 0
    group.leader.version = lambda: version
    following = group.follow("one", "two")
    group.leader.call("one", lambda: None)
    assert read == []
    version = 1
    group.leader.call("two", lambda: None)
    following[0].result(LIMIT_S)
    assert sorted(read) == [0, 1]


def test_all_ranks_raise_an_error_of_the_leader_and_calls_continue(
    make_group: Callable[..., Group],
) -> None:
    def fail() -> None:
        raise TrainingError("bad luck")

    group = make_group()
    with expect_error("bad luck", *group.follow("one")):
        group.leader.call("one", fail)
    (following,) = group.follow("two")
    assert group.leader.call("two", lambda: 5) == 5
    assert following.result(LIMIT_S) == [5]


def test_an_error_that_cannot_be_pickled_is_sent_as_text(make_group: Callable[..., Group]) -> None:
    class Local(Exception):
        pass

    def fail() -> None:
        raise Local("only here")

    group = make_group()
    (following,) = group.follow("one")
    with pytest.raises(Local):
        group.leader.call("one", fail)
    with pytest.raises(TrainingError, match="rank 0 of this peer has failed: only here"):
        following.result(LIMIT_S)


def test_a_command_that_fails_at_a_follower_fails_at_all_ranks(
    make_group: Callable[..., Group],
) -> None:
    def fail(_: object) -> None:
        raise TrainingError("no room")

    group = make_group()
    group.followers[0].handlers["echo"] = fail
    with expect_error("no room", *group.follow("one")):
        group.leader.call("one", lambda: group.leader.ask("echo"))
    with pytest.raises(TrainingError, match="rank 1 of this peer has failed: no room"):
        group.leader.call("two", lambda: None)


def test_processes_that_make_different_calls_fail(make_group: Callable[..., Group]) -> None:
    group = make_group()
    with expect_error("rank 1 calls merge where rank 0 calls step", *group.follow("merge")):
        group.leader.call("step", lambda: group.leader.ask("echo"))


def test_parts_of_a_process_that_has_ended_are_not_awaited(
    make_group: Callable[..., Group],
) -> None:
    group, before, outcome = make_group(), list[str](), list[Any]()

    def act() -> None:
        group.followers[0]._connections[0].close()  # as at the end of its process
        for _ in range(2):
            parts = group.leader.ask_for_parts("echo", "x", "x", lambda: before.append("written"))
            outcome.append(parts)

    with expect_error("rank 1 of this peer has ended"):
        group.leader.call("step", act)
        group.leader.call("step", act)
    assert outcome == [None, None] and group.failed.wait(LIMIT_S)
    # The end may be noticed before the first command, or by it.
    assert before in ([], ["written"])


def test_an_idle_leader_is_reported_as_stuck(make_group: Callable[..., Group]) -> None:
    group, reports = make_group(), list[bool]()
    group.leader.on_stuck, group.leader.stuck_s = reports.append, 0.05
    following = group.follow("step")
    group.leader.call("step", lambda: None)
    following[0].result(LIMIT_S)
    until(lambda: reports == [True])
    with pytest.raises(TrainingError, match=r"no step within 0\.05 s"):
        group.leader.call("step", lambda: None)
