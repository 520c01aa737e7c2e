"""The data that a page gets: curves, lanes and partitions, all of bounded size."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from rumor.cli.live.recording import CUT_OFF, Recording
from rumor.train.observe.view import EventView, PeerView, SwarmView

from .made_up import a_link, a_peer, a_view

T0 = 1_795_000_000.0


def at(second: int, *peers: PeerView, **fields: Any) -> SwarmView:
    return SwarmView(time_s=T0 + second, swarm_step=10 * second, peers=peers, **fields)


def test_curves_have_a_value_for_each_member_at_each_sample() -> None:
    recording = Recording()
    recording.add(at(0, a_peer("a", loss=2.0, distance=0.5)))
    sample = recording.add(at(1, a_peer("a", loss=1.0), a_peer("b", loss=float("nan"))))["sample"]
    assert sample == {
        "time_s": T0 + 1,
        "swarm_step": 10,
        "figures": [["a", 1.0, None], ["b", None, None]],
    }
    recording.add(at(2, a_peer("b", loss=3.0), a_peer("a", source="others", state="dead")))
    curves = recording.everything()["curves"]
    assert curves["times_s"] == [T0, T0 + 1, T0 + 2] and curves["swarm_steps"] == [0, 10, 20]
    assert curves["peers"] == [
        ["a", [2.0, 1.0, None], [0.5, None, None]],
        ["b", [None, None, 3.0], [None, None, None]],
    ]


def test_in_long_runs_every_other_sample_is_dropped() -> None:
    recording, samples = Recording(), 0
    views = [at(0, a_peer("a")), at(1, a_peer("a"))]
    for view in views + [at(second, a_peer("a", loss=1.0)) for second in range(2, 2000)]:
        samples += recording.add(view)["sample"] is not None
    curves = recording.everything()["curves"]
    times = curves["times_s"]
    assert 300 <= len(times) <= curves["samples_max"] == 600 and samples < 1300
    assert times[0] == T0 and len({b - a for a, b in pairwise(times)}) == 1
    ((name, losses, distances),) = curves["peers"]
    assert name == "a" and len(losses) == len(distances) == len(times)


def test_a_lane_is_a_list_of_changes() -> None:
    recording = Recording()
    for second in range(2):
        recording.add(at(second, a_peer("a")))
    recording.add(at(2, a_peer("a", state="dead", source="others")))
    for second in (3, 4):
        recording.add(at(second))
    lanes = recording.add(at(5, a_peer("a", state="joining")))["lanes"]
    assert lanes == [["a", [(T0, "training"), (T0 + 2, "dead"), (T0 + 3, ""), (T0 + 5, "joining")]]]


def test_the_size_is_bounded_for_any_number_of_members_and_changes() -> None:
    recording = Recording()
    for second in range(300):
        state: Any = ("training", "waiting")[second % 2]
        recording.add(at(second, a_peer("restless", state=state)))
    ((_, lane),) = recording.everything()["lanes"]
    assert len(lane) == 60 and lane[-1] == (T0 + 299, "waiting")
    crowd = [a_peer(f"p{number:03}") for number in range(300)]
    everything = recording.add(at(300, *crowd)) and recording.everything()
    assert len(everything["lanes"]) == len(everything["curves"]["peers"]) == 256
    assert len(recording.add(at(302, *crowd))["view"]["peers"]) == 300


def suspected(id: str) -> PeerView:
    return a_peer(id, suspected_by=2)


def test_a_member_that_answers_but_is_long_suspected_is_cut_off() -> None:
    recording = Recording()
    for second in range(2):
        shown = recording.add(at(second, suspected("a"), suspected("b"), a_peer("c")))["view"]
        assert [peer["state"] for peer in shown["peers"]] == ["training"] * 3
        assert shown["events"] == [] and shown["cut_off"] == 0
    shown = recording.add(at(2, suspected("a"), suspected("b"), a_peer("c")))["view"]
    assert [peer["state"] for peer in shown["peers"]] == [CUT_OFF, CUT_OFF, "training"]
    assert shown["cut_off"] == 2
    cut = {"time_s": T0 + 2, "event": "cut off", "peers": ["a", "b"], "peer": "a"}
    assert shown["events"] == [cut]
    # Then one of them dies, and the other is reached again.
    gone = replace(suspected("b"), state="dead", source="others")
    shown = recording.add(at(3, a_peer("a"), gone, a_peer("c")))["view"]
    over = {"time_s": T0 + 3, "event": "reached again", "peers": ["a"], "peer": "a"}
    assert shown["events"] == [cut, over]
    assert [peer["state"] for peer in shown["peers"]] == ["training", "dead", "training"]
    assert shown["dead"] == 1


def test_a_member_that_is_silent_or_gone_is_not_cut_off() -> None:
    recording = Recording()
    silent = replace(suspected("a"), source="others", state="silent")
    left = replace(suspected("b"), state="left")
    for second in range(5):
        shown = recording.add(at(second, silent, left))["view"]
    assert [peer["state"] for peer in shown["peers"]] == ["silent", "left"]


def test_links_are_rows_and_the_last_relevant_events_are_kept() -> None:
    events = [
        EventView(time_s=T0 + n, event="met" if n % 2 else "joined", peer=f"p{n}")
        for n in range(500)
    ]
    endless = replace(a_link("a", "c"), bytes_out_s=float("inf"))
    view = replace(a_view(2), links=(a_link("a", "b"), endless), events=tuple(events))
    shown = Recording().add(view)["view"]
    rest = [29_100.0, False, 400, 0, 390, 1, 0.0123]
    assert shown["links"] == [["a", "b", 30_500.0, *rest], ["a", "c", None, *rest]]
    assert len(shown["events"]) == 200 and {e["event"] for e in shown["events"]} == {"joined"}
    assert shown["events"][-1]["peer"] == "p498"
    assert shown["alive"] == 2 and shown["weight"] == view.weight
