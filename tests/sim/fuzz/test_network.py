"""Network faults: which links they affect, how they add up, and that they end."""

from rumor.sim.fuzz.network import CALM, NetworkFaults, NetworkState
from rumor.sim.kernel.faults import Fault


def fault(kind: str, **fields: object) -> Fault:
    return Fault(at_s=0.0, kind=kind, **fields)  # type: ignore[arg-type]


def cuts(state: NetworkState, peers: str = "abc") -> set[str]:
    links = [(source, to) for source in peers for to in peers if source != to]
    return {source + to for source, to in links if state.over(source, to) is None}


def test_without_a_fault_the_base_rates_hold() -> None:
    base = NetworkFaults(loss=0.1)
    assert NetworkState(base).over("a", "b") is base


def test_a_fault_of_one_peer_affects_what_it_sends_and_what_it_gets() -> None:
    state = NetworkState(CALM)
    state.begin(fault("loss", rate=0.4, peer="a"))
    rates = {link: state.over(*link) for link in ("ab", "ba", "bc")}
    assert {k: w.loss for k, w in rates.items() if w} == {"ab": 0.4, "ba": 0.4, "bc": 0.0}


def test_of_several_faults_the_worst_counts_and_each_ends_by_itself() -> None:
    state = NetworkState(CALM)
    mild, wild = fault("duplicate", rate=0.1), fault("duplicate", rate=0.3)
    late = fault("delay", by_s=0.5)
    for one in (mild, wild, late):
        state.begin(one)
    over = state.over("a", "b")
    assert over is not None and (over.duplicates, over.delay_s) == (0.3, 0.5)
    state.end(wild)
    state.end(late)
    over = state.over("a", "b")
    assert over is not None and (over.duplicates, over.delay_s) == (0.1, CALM.delay_s)


def test_equal_faults_are_two() -> None:
    state = NetworkState(CALM)
    one, other = fault("cut", peer="a"), fault("cut", peer="a")
    state.begin(one)
    state.begin(other)
    state.end(one)
    assert cuts(state) == {"ab", "ba", "ac", "ca"}
    state.end(other)
    assert cuts(state) == set()


def test_a_cut_is_of_all_links_of_one_peer_or_of_one_of_them_in_both_ways_or_one() -> None:
    found = []
    for fields in (
        {"peer": "a"},
        {"peer": "a", "one_way": True},
        {"peer": "a", "to": "b"},
        {"peer": "a", "to": "b", "one_way": True},
    ):
        state = NetworkState(CALM)
        state.begin(fault("cut", **fields))
        found.append(cuts(state))
    assert found == [{"ab", "ba", "ac", "ca"}, {"ab", "ac"}, {"ab", "ba"}, {"ab"}]


def test_groups_of_a_partition_keep_to_themselves_and_so_do_the_rest() -> None:
    state = NetworkState(CALM)
    state.begin(fault("partition", groups=(("a",), ("b", "c"))))
    assert cuts(state, "abcde") == {
        one + other
        for one in "abcde"
        for other in "abcde"
        if one != other and {one, other} not in ({"b", "c"}, {"d", "e"})
    }


def test_healing_ends_cuts_and_partitions_and_leaves_the_rest() -> None:
    state = NetworkState(CALM)
    for one in (
        fault("cut", peer="a"),
        fault("partition", groups=(("b",),)),
        fault("replay", rate=0.2),
    ):
        state.begin(one)
    state.heal()
    over = state.over("a", "b")
    assert over is not None and over.replays == 0.2


def test_setting_the_base_ends_all_faults() -> None:
    state = NetworkState(CALM)
    state.begin(fault("cut", peer="a"))
    state.base = CALM
    assert state.over("a", "b") is CALM
