"""Pictures of topologies of any family and size."""

from pathlib import Path

import pytest

from rumor.topology import TopologyError, facts, over, parse
from rumor.topology.drawing import check_size, draw, headline

from .samples import OF_16


@pytest.mark.extended
@pytest.mark.parametrize(
    ("spec", "n"),
    [
        *((spec, 16) for spec in OF_16),
        ("ring", 1),
        ("hosts:sizes=1", 1),
        ("erdos-renyi", 300),
        ("base-k", 61),
    ],
)
def test_every_family_and_size_has_a_picture(tmp_path: Path, spec: str, n: int) -> None:
    topology, path = parse(spec, n), tmp_path / "graph.png"
    draw([(topology, facts(topology))], path, dpi=30)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_several_topologies_are_drawn_side_by_side(tmp_path: Path) -> None:
    several = [(topology, facts(topology)) for topology in (parse("ring", 4), parse("star", 4))]
    draw(several, tmp_path / "both.svg")
    text = (tmp_path / "both.svg").read_text()
    assert "<!-- ring, n = 4 -->" in text and "<!-- star, n = 4 -->" in text


def test_dollars_and_underscores_in_names_are_no_math_markup(tmp_path: Path) -> None:
    path = tmp_path / "$x_$.edgelist"
    path.write_text("$a_name$ $\\b$\n$\\b$ c_$^\n")
    # The first topology has names above its nodes, the second inside them.
    several = parse(f"file:path={path}"), over("one-peer-exponential", 0, ["$", "$$", "$_$"])
    draw([(topology, facts(topology)) for topology in several], tmp_path / "net.svg")
    text = (tmp_path / "net.svg").read_text()
    assert all(f"<!-- {name} -->" in text for topology in several for name in topology.names)


def test_a_long_period_shows_some_rounds_and_their_total(tmp_path: Path) -> None:
    topology = parse("base-k", 61)
    assert topology.period is not None and topology.period > 9
    draw([(topology, facts(topology))], tmp_path / "graph.svg")
    text = (tmp_path / "graph.svg").read_text()
    assert "<!-- round 8 -->" in text and "<!-- round 9 -->" not in text
    assert f"of {topology.period} rounds" in text


@pytest.mark.parametrize(
    ("spec", "n", "message"),
    [("ring", 501, "501 nodes would be"), ("complete", 100, "9,900 edges would be")],
)
def test_an_unreadably_dense_picture_is_refused(spec: str, n: int, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        check_size(parse(spec, n))
    check_size(parse("ring", 500))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ring", "2 pushes a round  ·  spectral gap 0.0507"),
        ("one-peer-exponential", "1 push a round  ·  exact after 4 rounds"),
        ("complete", "15 pushes a round  ·  exact after 1 round  ·  16 effective neighbors"),
        ("star", "1 to 15 pushes a round"),
    ],
)
def test_three_facts_are_shown_above_a_picture(spec: str, message: str) -> None:
    assert headline(facts(parse(spec, 16))).startswith(message)
