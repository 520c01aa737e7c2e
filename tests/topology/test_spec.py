"""Input forms of specs and their canonical form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.topology import FAMILIES, TopologyError, parse
from rumor.topology.spec import read

from .samples import LIVE


@pytest.mark.parametrize(
    ("typed", "canonical"),
    [
        ("ring", "ring"),
        ("grid", "grid"),
        ("torus:cols=08,rows=4", "torus:rows=4,cols=8"),
        ("torus:cols=8", "torus:cols=8"),
        ("base-k:k= 3", "base-k:k=3"),
        ("erdos-renyi:p=1", "erdos-renyi:p=1.0"),
        ("erdos-renyi:p=2e-1", "erdos-renyi:p=0.2"),
        ("small-world:p=.25,k=+6", "small-world:k=6,p=0.25"),
        ("hosts:between=star,sizes=04x4x8", "hosts:sizes=4x4x8,between=star"),
        ("file:path=a:b=c/d.json", "file:path=a:b=c/d.json"),
        ("spanning-tree:of=ring", "spanning-tree:of=ring"),
        ("spanning-tree:of=torus:cols=08,rows=4", "spanning-tree:of=torus:rows=4,cols=8"),
        (
            "spanning-tree:of=spanning-tree:of=small-world:p=0,k=2",
            "spanning-tree:of=spanning-tree:of=small-world:k=2,p=0.0",
        ),
    ],
)
def test_a_spec_has_one_canonical_form(typed: str, canonical: str) -> None:
    assert str(read(typed)) == str(read(canonical)) == canonical


@pytest.mark.parametrize("spec", LIVE)
def test_a_canonical_spec_does_not_change(spec: str) -> None:
    assert str(read(str(read(spec)))) == str(read(spec))


@given(st.floats(0, 1, exclude_min=True), st.integers(1, 200))
def test_a_number_is_printed_with_all_digits(p: float, n: int) -> None:
    assert read(f"erdos-renyi:p={p!r}").values == {"p": p}
    assert read(str(read(f"erdos-renyi:p={p!r}"))).values == {"p": p}


def test_topologies_with_equal_arguments_are_equal() -> None:
    torus = parse("torus:rows=3,cols=4", 12, seed=7)
    assert torus == parse("torus:cols=4,rows=3", seed=7)
    assert hash(torus) == hash(parse("torus:cols=4,rows=3", seed=7))
    others = [
        parse("torus:rows=4,cols=3", seed=7),
        parse("torus:rows=3,cols=4", seed=8),
        parse("torus", 12, seed=7),
    ]
    assert all(torus != other for other in others)


@pytest.mark.parametrize(
    ("spec", "n"),
    [
        ("hosts:sizes=4x4x8", 16),
        ("torus:rows=3,cols=4", 12),
        ("grid:rows=1,cols=4", 4),
        ("spanning-tree:of=hosts:sizes=2x3", 5),
    ],
)
def test_a_size_may_be_omitted_if_the_spec_fixes_it(spec: str, n: int) -> None:
    assert parse(spec).n == n
    assert parse(spec) == parse(spec, n)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_needs_only_its_declared_arguments(name: str) -> None:
    needed = {"hosts": "sizes=", "file": "path=", "spanning-tree": "of="}
    if name in needed:
        with pytest.raises(TopologyError, match=f"topology '{name}': it needs {needed[name]}"):
            read(name)
    else:
        assert str(read(name)) == name


@pytest.mark.parametrize("n", [2.5, "4"])
def test_a_number_of_nodes_that_is_no_integer_is_refused(n: object) -> None:
    with pytest.raises(TopologyError, match="it must be a whole number"):
        parse("ring", n)  # type: ignore[arg-type]
