"""Faults of peers and their network, and their times, with fake processes and a fake clock."""

import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.launch.config import Place
from rumor.cli.launch.faults import FaultInjector, read_live_faults
from rumor.cli.launch.folder import RunFolder
from rumor.cli.launch.monitor import Monitor, State
from rumor.cli.launch.processes import ProcessGroup
from rumor.gossip.errors import ConfigError
from rumor.train.faults.schedule import LIVE_KINDS, read_faults
from rumor.train.faults.transport import NetworkPlan

from ...faults import Fault, fault
from .fakes import checked_job, job_of

STEP_S = 0.001


class FakeProcess:
    """A fake process that records and obeys its signals."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.status: int | None = None
        self._note = note

    def poll(self) -> int | None:
        return self.status

    def kill(self) -> None:
        self._note("kill")
        self.status = -9

    def wait(self) -> None: ...

    def send_signal(self, number: signal.Signals) -> None:
        self._note({signal.SIGSTOP: "hold", signal.SIGCONT: "release"}[number])


class FakeGroup(ProcessGroup):
    """A group of fake processes."""

    def __init__(self, places: Sequence[Place], stage: "Stage") -> None:
        super().__init__(places)
        self._stage = stage
        self.processes: list[Any] = [self._process(place) for place in places]

    def _process(self, place: Place) -> FakeProcess:
        return FakeProcess(lambda what: self._stage.note(f"{what} {place.id}"))

    def add(self, place: Place) -> None:
        self._stage.note(f"start {place.id}")
        self.places.append(place)
        self.processes.append(self._process(place))

    def restart(self, index: int, place: Place) -> None:
        kept = "RUMOR_RESUME" in place.variables
        self._stage.note(f"{'resume' if kept else 'renew'} {place.id}")
        self.places[index], self.processes[index] = place, self._process(place)
        self._held.pop(index, None)
        self._stage.measure(index)

    def leave(self, index: int, number: int = signal.SIGTERM) -> None:
        self._stage.note(f"leave {self.places[index].id}")


class Stage:
    """Three fake peers under a schedule of faults."""

    def __init__(self, folder: Path, faults: list[dict[str, Any]]) -> None:
        self.now_s = 100.0
        self.actions: list[tuple[float, str]] = []
        schedule = read_faults(json.dumps(faults))
        run_folder = RunFolder(job_of(folder, peers=3, faults=schedule))
        self.group = FakeGroup(run_folder.found(), self)
        for place in self.group.places:
            (place.folder / "options.json").touch()  # as if each peer had started
        self.monitor = Monitor(self.group.places, self.group.processes, 100)
        self.injector = FaultInjector(
            schedule, self.group, self.monitor, run_folder, seed=5, clock=lambda: self.now_s
        )
        self.news: list[str] = []

    def note(self, what: str) -> None:
        self.actions.append((round(self.now_s - 100.0, 3), what))

    def measure(self, index: int, step: int = 10) -> None:
        with open(self.group.places[index].folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"step": step}) + "\n")

    def train(self) -> "Stage":
        """Let all peers take a step; the times of faults count from here."""
        for index in range(3):
            self.measure(index)
        self.monitor.update()
        return self

    def play(self, until_s: float, step_s: float = STEP_S) -> list[tuple[float, str]]:
        """Advance the clock to *until_s*; return all actions so far with their times."""
        while self.now_s < 100.0 + until_s:
            self.news += self.injector.update()
            self.monitor.update()
            self.now_s += step_s
        return self.actions


def test_times_count_from_the_moment_all_peers_train(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [fault(0, "crash", "peer-1")])
    assert stage.play(1.0) == [] and stage.injector.next_s == float("inf")
    stage.train()
    assert stage.play(2.0) == [(1.0, "kill peer-1")]
    assert stage.news == ["fault at 0.0 s: peer-1 is killed"]


ALL = ("peer-0", "peer-1", "peer-2")


CRASH = fault(1, "crash", "peer-1")
LOST, KEPT = fault(2, "restart", "peer-1", state="lost"), fault(3, "restart", "peer-1")
SOME = fault(1, "mass-restart", peers=["peer-0", "peer-2"], for_s=0.5, state="lost")
PAUSES = fault(1, "pause", "peer-2", for_s=1), fault(3, "pause", "peer-2")
CONTINUES = fault(3.5, "continue", "peer-2")
JOINS = fault(1, "join", count=2), fault(2, "join")
KILLS = "1 kill peer-0, 1 kill peer-1, 1 kill peer-2"


@pytest.mark.extended
@pytest.mark.parametrize(
    ("faults", "done"),
    [
        ([CRASH, KEPT], "1 kill peer-1, 3 resume peer-1"),
        (
            [CRASH, CRASH, LOST, KEPT, fault(3, "crash", "peer-1")],
            "1 kill peer-1, 2 renew peer-1, 3 kill peer-1",
        ),
        (
            [fault(1, "mass-restart", for_s=0.5)],
            f"{KILLS}, 1.5 resume peer-0, 1.5 resume peer-1, 1.5 resume peer-2",
        ),
        (
            [fault(1, "crash", "peer-0"), SOME],
            "1 kill peer-0, 1 kill peer-2, 1.5 renew peer-2",
        ),
        (
            [*PAUSES, CONTINUES, CONTINUES],
            "1 hold peer-2, 2 release peer-2, 3 hold peer-2, 3.5 release peer-2",
        ),
        (
            [*JOINS, fault(3, "leave", "join-3"), fault(3, "crash", "join-1")],
            "1 start join-1, 1 start join-2, 2 start join-3, 3 leave join-3, 3 kill join-1",
        ),
        ([fault(1, "leave", "join-1"), fault(2, "join")], "2 start join-1"),
    ],
)
def test_each_fault_happens_at_its_time(tmp_path: Path, faults: list[Fault], done: str) -> None:
    actions = Stage(tmp_path, faults).train().play(5.0, step_s=0.002)
    assert ", ".join(f"{round(at_s, 2):g} {what}" for at_s, what in actions) == done


def test_peers_get_network_faults_before_their_start_time(tmp_path: Path) -> None:
    faults = [fault(1, "crash", "peer-1"), fault(1, "join", count=2), fault(2, "cut", "join-2")]
    stage = Stage(tmp_path, faults)
    stage.play(1.0)
    plan = NetworkPlan.read(tmp_path / "network-faults.json")
    assert plan.ids == (*ALL, "join-1", "join-2")
    assert [fault.kind for fault in plan.faults] == ["cut"]
    assert (plan.seed, plan.began_unix_s) == (5, None)
    before_s = time.time()
    stage.train().play(2.0)
    since = NetworkPlan.read(tmp_path / "network-faults.json")
    assert since == replace(plan, began_unix_s=since.began_unix_s)
    assert since.began_unix_s is not None and before_s <= since.began_unix_s <= time.time()


def test_a_slowed_and_paused_peer_stays_held_during_the_pause(tmp_path: Path) -> None:
    slow = fault(1, "slow", "peer-1", factor=2, for_s=0.4)
    stage = Stage(tmp_path, [slow, fault(1.2, "pause", "peer-1", for_s=3)]).train()
    stage.play(2.0, step_s=0.002)
    (held,) = stage.group.holds(1)
    assert held.startswith("pause")


def run_of(stage: Stage, since_s: float, until_s: float) -> float:
    """Return the fraction of an interval during which peer-1 was not held."""
    marks = [(at_s, what) for at_s, what in stage.actions if since_s <= at_s < until_s]
    holds = [at_s for at_s, what in marks if what == "hold peer-1"]
    releases = [at_s for at_s, what in marks if what == "release peer-1"]
    held_s = sum(min((r for r in releases if r >= at_s), default=until_s) - at_s for at_s in holds)
    return 1 - held_s / (until_s - since_s)


def pause(at_s: float, for_s: float) -> Fault:
    return fault(at_s, "pause", "peer-1", for_s=for_s)


def resume(at_s: float) -> Fault:
    return fault(at_s, "continue", "peer-1")


@pytest.mark.parametrize(
    ("faults", "released_s"),
    [
        # The scheduled end of a pause that was cut short does not end the next pause.
        ([pause(1, 3), resume(2), pause(3, 5)], [2, 8]),
        # When two pauses overlap, the peer resumes when the later of the two ends.
        ([pause(1, 2), pause(2, 5)], [7]),
        ([pause(1, 6), pause(2, 1)], [7]),
        # "continue" resumes a peer no matter how often it was paused.
        ([pause(1, 6), fault(2, "pause", "peer-1"), resume(3)], [3]),
    ],
)
def test_the_end_of_a_pause_does_not_end_another_pause(
    tmp_path: Path, faults: list[Fault], released_s: list[float]
) -> None:
    stage = Stage(tmp_path, faults).train()
    resumed_s: list[float] = []
    for now_s in range(1, 10):
        before = stage.group.holds(1)
        stage.play(now_s + 0.5, step_s=0.05)
        if before and not stage.group.holds(1):
            resumed_s.append(now_s)
    assert resumed_s == released_s
    assert len([word for word in stage.news if word.endswith("continues")]) == len(released_s)


@pytest.mark.extended
def test_the_larger_of_two_slowdowns_applies_and_each_ends_on_its_own(tmp_path: Path) -> None:
    rows = [(1, 3, 4), (2, 5, 1), (7, 2, 2)]
    faults = [fault(at_s, "slow", "peer-1", factor=f, for_s=for_s) for at_s, f, for_s in rows]
    stage = Stage(tmp_path, faults).train()
    stage.play(10.0)
    times_slower = [round(1 / run_of(stage, k + 0.1, k + 0.9)) for k in (1, 2, 3, 4, 5, 7, 8)]
    assert times_slower == [3, 5, 3, 3, 1, 2, 2]
    paces = [word.partition("peer-1 runs ")[2].split()[0] for word in stage.news]
    assert paces == ["1/3", "1/5", "1/3", "all", "1/2", "all"]
    assert not stage.group.holds(1)


@pytest.mark.extended
def test_a_slow_machine_stays_slow_after_its_peer_restarts(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [fault(1, "slow", "peer-1", factor=4), *KILLED]).train()
    stage.play(6.0)
    assert run_of(stage, 3.5, 5.5) == pytest.approx(1 / 4, abs=0.05)


def test_faults_are_recorded_with_their_time_and_step(tmp_path: Path) -> None:
    faults = [
        fault(1, "crash", "peer-1"),
        fault(2, "heal"),
        fault(2, "reset", every_s=0.1, for_s=0.25),
        fault(90, "heal"),
    ]
    stage = Stage(tmp_path, faults).train()
    stage.play(0.5, step_s=0.005)
    for index, step in enumerate((50, 30, 70)):
        stage.measure(index, step)
    assert [what for _, what in stage.play(5.0, step_s=0.005)] == ["kill peer-1"]
    crash, heal, reset, never = stage.injector.records
    assert crash.items() >= faults[0].items()
    assert [(done["step"], done["what"]) for done in crash["done"]] == [(30, "peer-1 is killed")]
    assert crash["done"][0]["at_s"] == pytest.approx(1.0, abs=0.01)
    assert [(done["step"], done["what"]) for done in heal["done"]] == [(50, "heal begins")]
    begun, over = (done["what"] for done in reset["done"])
    assert (begun, over) == ("reset begins: for_s 0.25, every_s 0.1", "reset ends")
    assert never["done"] == []


def test_a_run_waits_for_peers_that_will_be_restarted(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [fault(1, "mass-restart", for_s=1), fault(9, "join")]).train()
    stage.play(0.5)
    assert not stage.injector.will_revive
    stage.play(1.5)
    assert stage.monitor.over and stage.injector.will_revive
    stage.play(3.0)
    assert not stage.monitor.over and not stage.injector.will_revive


def test_a_finished_peer_is_not_restarted(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [fault(1, "restart", "peer-0")]).train()
    (stage.group.places[0].folder / "peer.json").write_text('{"state":"finished"}')
    stage.group.processes[0].status = 0
    stage.monitor.update()
    assert not stage.injector.will_revive
    assert stage.play(2.0) == []
    assert stage.news == ["fault at 1.0 s: restart: nothing is done, peer-0 is finished"]


def test_a_later_incarnation_is_shown_separately_from_earlier_ones(tmp_path: Path) -> None:
    stage = Stage(tmp_path, KILLED).train()
    stage.play(2.5, step_s=0.05)
    assert stage.monitor.views[1].state is State.KILLED
    ledger = stage.group.places[1].folder / "ledger.jsonl"
    ledger.write_text('{"kind":"opened","id":"peer-1","incarnation":7}\n{"kind":"fou')
    stage.play(4.0, step_s=0.05)
    view = stage.monitor.views[1]
    assert view.state is State.TRAINING
    (end,) = view.earlier
    assert (end.state, end.why, end.step) == (State.KILLED, "SIGKILL", 10)
    assert end.lives == {("peer-1", 7)}


PEERS = ("peer-0", "peer-1")


def schedule(folder: Path, *faults: Fault) -> Path:
    path = folder / "faults.json"
    path.write_text(json.dumps(faults))
    return path


KILLED = [fault(2, "crash", "peer-1"), fault(3, "restart", "peer-1")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (fault(1, "clock-jump", 0, by_s=5), "clock-jump cannot be done here"),
        (fault(1, "diverge", 0), "diverge cannot be done here"),
        (fault(1, "crash", 0, after=2), r"fault 1 \(crash\): after is for simulations alone"),
        (fault(1, "crash", 0, accepting=True), "accepting is for simulations alone"),
        (fault(1, "slow", 0, factor=0.5), "factor is 0.5: it must be at least 1"),
        (fault(1, "crash", 2), "not a peer's index in this run"),
        (fault(1, "crash", "peer-9"), "'peer-9' is not a peer of this run"),
    ],
)
def test_faults_impossible_on_real_processes_are_refused(
    tmp_path: Path, row: Fault, message: str
) -> None:
    path = schedule(tmp_path, row)
    with pytest.raises(ConfigError, match=message) as refused:
        read_live_faults(path, PEERS, journal=False)
    assert str(refused.value).startswith(f"--faults {path}: ")


def test_a_run_with_journals_can_only_restart_peers_that_lost_their_state(tmp_path: Path) -> None:
    for row in (fault(1, "restart", 0), fault(1, "mass-restart", for_s=1)):
        with pytest.raises(ConfigError, match='state must be "lost"'):
            read_live_faults(schedule(tmp_path, row), PEERS, journal=True)
        path = schedule(tmp_path, row | {"state": "lost"})
        assert read_live_faults(path, PEERS, journal=True)


def test_peers_are_named_and_faults_are_sorted_by_time(tmp_path: Path) -> None:
    path = schedule(tmp_path, fault(1, "leave", 1), fault(0, "crash", 0))
    faults = read_live_faults(path, PEERS, journal=False)
    assert [(each.kind, each.peer) for each in faults] == [("crash", "peer-0"), ("leave", "peer-1")]


@pytest.mark.parametrize(
    ("row", "needed"),
    [(fault(1, "crash", 0), False), (fault(1, "cut", 0), True), (fault(1, "reset"), True)],
)
def test_network_faults_turn_shared_memory_off(tmp_path: Path, row: Fault, needed: bool) -> None:
    job = checked_job(peers=2, out=tmp_path / "run", faults=schedule(tmp_path, row))
    assert job.network_fails is needed
    assert job.config.exchange.shared_memory is not needed


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "faults.md"

with_docs = pytest.mark.skipif(not PAGE.exists(), reason="the docs are not next to the tests")


@with_docs
def test_the_docs_describe_every_kind_of_fault_on_real_processes() -> None:
    page = PAGE.read_text(encoding="utf-8")
    section = page.split("## On real processes")[1]
    items = "".join(line for line in section.splitlines(True) if line.startswith("- `"))
    assert [kind for kind in LIVE_KINDS if f"`{kind}`" not in items] == []


@with_docs
def test_the_schedule_in_the_docs_is_accepted(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    example = page.split("## On real processes")[1].split("```json\n")[1].split("```")[0]
    path = schedule(tmp_path, *json.loads(example))
    assert len(read_live_faults(path, ["a", "b", "c", "d"], journal=False)) == 4


@pytest.mark.extended
@pytest.mark.parametrize(
    ("network_fault", "about"),
    [
        (
            fault(1, "cut", "peer-0", to="peer-1", one_way=True),
            "for_s 2, peer peer-0, to peer-1, one_way True",
        ),
        (
            fault(1, "partition", groups=[["peer-0", "peer-2"], ["peer-1"]]),
            "for_s 2, groups [['peer-0', 'peer-2'], ['peer-1']]",
        ),
    ],
)
def test_network_faults_are_reported(tmp_path: Path, network_fault: Fault, about: str) -> None:
    stage = Stage(tmp_path, [network_fault | {"for_s": 2}]).train()
    assert stage.play(5.0) == []
    begun, over = (each.partition(": ")[2] for each in stage.news)
    kind, details = begun.split(": ")
    assert kind == f"{network_fault['kind']} begins" and over == f"{network_fault['kind']} ends"
    assert sorted(details.split(", ")) == sorted(about.split(", "))
    assert [done["what"] for done in stage.injector.records[0]["done"]] == [begun, over]
