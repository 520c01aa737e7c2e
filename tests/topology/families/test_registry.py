"""A custom family is registered, parsed, built, analyzed, used on live peers, and removed."""

from collections.abc import Iterator

import pytest

from rumor.topology import FAMILIES, TopologyError, facts, over, parse
from rumor.topology.drawing import headline
from rumor.topology.families import Family, Site, register, registry
from rumor.topology.families.family import Values, count, whole
from rumor.topology.schedules.cayley import Cayley, circulant
from rumor.topology.spec import read


def build(site: Site, values: Values) -> Cayley:
    width = whole(values, "w")
    shifts = dict.fromkeys(s for w in range(1, width + 1) for s in (w, site.n - w) if w < site.n)
    return circulant(site.n, [tuple(shifts)])


BAND = Family(
    summary="a cycle with the w nearest nodes on either side",
    source="a test",
    build=build,
    layout="circle",
    parameters=(count("w", 2),),
    limits={"w": -1},
)


@pytest.fixture
def band() -> Iterator[Family]:
    register("band", BAND)
    yield BAND
    del registry._families["band"]


@pytest.mark.usefixtures("band")
def test_a_custom_family_is_parsed_built_and_analyzed_like_any_other() -> None:
    topology = parse("band:w=3", 16)
    assert topology.spec == "band:w=3" and topology.layout == "circle"
    assert sorted(topology.neighbors(0)) == [1, 2, 3, 13, 14, 15]
    assert parse("band", 16).neighbors(0) == parse("band:w=2", 16).neighbors(0)
    found = facts(topology)
    assert found.degree_max == 6 and found.diameter == 3 and found.doubly_stochastic
    assert headline(found).startswith("6 pushes a round")
    assert str(read("spanning-tree:of=band:w=02")) == "spanning-tree:of=band:w=2"
    with pytest.raises(TopologyError, match="w=16: it must be below n"):
        parse("band:w=16", 16)
    assert over("band:w=9", 0, ["a", "b"]).neighbors(0) == (1,)


@pytest.mark.parametrize("name", ["ring", "", "a:b", "a,b", "a=b", "-"])
def test_a_name_that_is_taken_or_invalid_is_refused(name: str) -> None:
    before = dict(FAMILIES)
    with pytest.raises(TopologyError):
        register(name, BAND)
    assert dict(FAMILIES) == before
