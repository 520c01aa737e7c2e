"""Spells of weather: whom they befall, how they add up, and that they pass."""

from rumor.sim.fuzz.network import CALM, NetworkFaults, NetworkState
from rumor.sim.kernel.faults import Fault


def spell(kind: str, **fields: object) -> Fault:
    return Fault(at_s=0.0, kind=kind, **fields)  # type: ignore[arg-type]


def cuts(sky: NetworkState, peers: str = "abc") -> set[str]:
    links = [(source, to) for source in peers for to in peers if source != to]
    return {source + to for source, to in links if sky.over(source, to) is None}


def test_without_a_spell_there_is_the_weather_there_is_anyway() -> None:
    base = NetworkFaults(loss=0.1)
    assert NetworkState(base).over("a", "b") is base


def test_a_spell_of_one_peer_befalls_what_it_sends_and_what_it_gets() -> None:
    sky = NetworkState(CALM)
    sky.begin(spell("loss", rate=0.4, peer="a"))
    rates = {link: sky.over(*link) for link in ("ab", "ba", "bc")}
    assert {k: w.loss for k, w in rates.items() if w} == {"ab": 0.4, "ba": 0.4, "bc": 0.0}


def test_of_several_spells_the_worst_counts_and_each_passes_by_itself() -> None:
    sky = NetworkState(CALM)
    mild, wild = spell("duplicate", rate=0.1), spell("duplicate", rate=0.3)
    late = spell("delay", by_s=0.5)
    for one in (mild, wild, late):
        sky.begin(one)
    over = sky.over("a", "b")
    assert over is not None and (over.duplicates, over.delay_s) == (0.3, 0.5)
    sky.end(wild)
    sky.end(late)
    over = sky.over("a", "b")
    assert over is not None and (over.duplicates, over.delay_s) == (0.1, CALM.delay_s)


def test_equal_spells_are_two() -> None:
    sky = NetworkState(CALM)
    one, other = spell("cut", peer="a"), spell("cut", peer="a")
    sky.begin(one)
    sky.begin(other)
    sky.end(one)
    assert cuts(sky) == {"ab", "ba", "ac", "ca"}
    sky.end(other)
    assert cuts(sky) == set()


def test_a_cut_is_of_all_links_of_one_peer_or_of_one_of_them_in_both_ways_or_one() -> None:
    found = []
    for fields in (
        {"peer": "a"},
        {"peer": "a", "one_way": True},
        {"peer": "a", "to": "b"},
        {"peer": "a", "to": "b", "one_way": True},
    ):
        sky = NetworkState(CALM)
        sky.begin(spell("cut", **fields))
        found.append(cuts(sky))
    assert found == [{"ab", "ba", "ac", "ca"}, {"ab", "ac"}, {"ab", "ba"}, {"ab"}]


def test_groups_of_a_partition_keep_to_themselves_and_so_do_the_rest() -> None:
    sky = NetworkState(CALM)
    sky.begin(spell("partition", groups=(("a",), ("b", "c"))))
    assert cuts(sky, "abcde") == {
        one + other
        for one in "abcde"
        for other in "abcde"
        if one != other and {one, other} not in ({"b", "c"}, {"d", "e"})
    }


def test_healing_ends_cuts_and_partitions_and_leaves_the_rest() -> None:
    sky = NetworkState(CALM)
    for one in (
        spell("cut", peer="a"),
        spell("partition", groups=(("b",),)),
        spell("replay", rate=0.2),
    ):
        sky.begin(one)
    sky.heal()
    over = sky.over("a", "b")
    assert over is not None and over.replays == 0.2


def test_other_weather_ends_all_spells() -> None:
    sky = NetworkState(CALM)
    sky.begin(spell("cut", peer="a"))
    sky.base = CALM
    assert sky.over("a", "b") is CALM
