"""What a peer that comes or goes moves: against counts by hand and a plain count."""

from statistics import mean

import pytest

from rumor.topology import TopologyError, over
from rumor.topology.analysis.churn import Churn, churn
from rumor.topology.hashing import generator, key

from ..samples import BRIDGE, RANDOM_ROUNDS, STREETS


def test_in_a_complete_graph_nothing_moves() -> None:
    assert churn("complete", 9) == Churn(edges=72.0, moved_leave=0.0, moved_join=0.0)


def test_a_ring_closes_and_opens_with_one_link_both_ways() -> None:
    assert churn("ring", 9) == Churn(edges=18.0, moved_leave=2.0, moved_join=2.0)


def test_a_ring_of_three_loses_nothing_and_opens_at_one_link() -> None:
    assert churn("ring", 3) == Churn(edges=6.0, moved_leave=0.0, moved_join=2.0)


def test_two_peers_have_no_link_left_to_move() -> None:
    assert churn("ring", 2) == Churn(edges=2.0, moved_leave=0.0, moved_join=0.0)


def test_one_push_each_and_round_is_counted_once_each() -> None:
    measured = churn("one-peer-exponential", 16, trials=3, rounds=4)
    # Arcs of 1, 2, 4 and 8 places: each peer that an arc leaps over puts its push on another.
    assert measured == Churn(edges=16.0, moved_leave=6.5, moved_join=6.5)


@pytest.mark.parametrize("spec", ["random-regular:d=3", "torus", "base-k:k=2", "epidemic", BRIDGE])
def test_links_that_move_are_those_that_a_plain_count_finds(spec: str) -> None:
    n, rounds = 13, 3
    before = after_leave = after_join = 0.0
    for trial in range(4):
        seed = key(5, "churn", trial)
        rng = generator(seed, "churn")
        peers = [f"{word:016x}" for word in rng.integers(2**64, size=n + 1, dtype="uint64")]
        gone, new = peers[int(rng.integers(n))], peers[n]
        old, left, joined = (
            [
                links(spec, seed, [peer for peer in peers if peer not in away], r)
                for r in range(rounds)
            ]
            for away in ({new}, {new, gone}, set())
        )
        before += mean(map(len, old))
        after_leave += mean(
            len({link for link in old[r] if gone not in link} ^ left[r]) for r in range(rounds)
        )
        after_join += mean(
            len({link for link in joined[r] if new not in link} ^ old[r]) for r in range(rounds)
        )
    measured = churn(spec, n, seed=5, trials=4, rounds=rounds)
    assert measured.edges == pytest.approx(before / 4)
    assert measured.moved_leave == pytest.approx(after_leave / 4)
    assert measured.moved_join == pytest.approx(after_join / 4)


def links(spec: str, seed: int, live: list[str], round: int) -> set[tuple[str, str]]:
    live = sorted(live)
    topology = over(spec, seed, live)
    return {
        (peer, live[other])
        for node, peer in enumerate(live)
        for other in topology.neighbors(node, round)
    }


def test_a_file_s_peers_have_their_own_names() -> None:
    # All seven as in the file: 8 links, both ways; strangers would make a ring of 7.
    assert churn(BRIDGE, 7).edges == 16
    assert churn(BRIDGE, 8).edges == 16 and churn(BRIDGE, 6).edges == 12
    assert churn(STREETS, 4).edges == 5


def test_the_seed_alone_decides() -> None:
    assert churn("scale-free", 20, seed=3) == churn("scale-free", 20, seed=3)
    assert churn("scale-free", 20, seed=3) != churn("scale-free", 20, seed=4)


def test_graphs_that_are_drawn_once_move_less_than_a_tenth_of_their_links() -> None:
    for spec in (
        "random-regular",
        "random-regular:d=5",
        "erdos-renyi",
        "small-world",
        "scale-free",
    ):
        measured = churn(spec, 64)
        assert measured.moved_leave + measured.moved_join < 0.1 * measured.edges, spec


def test_shifts_that_stay_move_fewer_links_than_a_new_draw_would() -> None:
    for spec in ("equi-static:m=5", "d-equi-static:m=5"):
        measured = churn(spec, 64)
        # A new draw moves nearly all: it takes them away, and lays as many new ones.
        assert measured.moved_leave < 0.3 * 2 * measured.edges, spec


def test_rows_keep_their_length_so_that_few_links_between_them_move() -> None:
    for spec in ("grid", "torus"):
        for n in (48, 60):
            measured = churn(spec, n, trials=5)
            assert measured.moved_leave + measured.moved_join < measured.edges, spec


def test_rounds_drawn_anew_move_nearly_all() -> None:
    for spec in RANDOM_ROUNDS - {"equi-dyn", "od-equi-dyn"}:
        measured = churn(spec, 32, trials=5)
        assert measured.moved_leave > measured.edges, spec


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"n": 1}, "n=1: it must be at least 2"),
        ({"n": 4, "trials": 0}, "trials=0: it must be at least 1"),
        ({"n": 4, "rounds": -1}, "rounds=-1: it must be at least 1"),
    ],
)
def test_too_small_a_number_is_refused(given: dict[str, int], reason: str) -> None:
    with pytest.raises(TopologyError) as caught:
        churn("ring", **given)
    assert str(caught.value) == f"churn of 'ring': {reason}"


def test_a_bad_spec_is_refused() -> None:
    with pytest.raises(TopologyError, match="unknown topology 'rnig'"):
        churn("rnig", 8)
