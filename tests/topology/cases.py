"""Specs of every family with a number of nodes that it can have, as hypothesis draws them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hypothesis import strategies as st

from .samples import FIXED, RANDOM_ROUNDS

__all__ = ["cases"]

Case = tuple[str, int]
Strategy = st.SearchStrategy[Case]


def _with(key: str, values: st.SearchStrategy[int], least: int = 1) -> Callable[[str], Strategy]:
    """A family whose parameter must be below n."""

    def below_n(name: str) -> Strategy:
        return values.flatmap(
            lambda value: st.integers(value + least, 24).map(lambda n: (f"{name}:{key}={value}", n))
        )

    return below_n


def _any_size(name: str) -> Strategy:
    return st.integers(1, 24).map(lambda n: (name, n))


def _power_of_two(name: str) -> Strategy:
    return st.integers(0, 5).map(lambda power: (name, 2**power))


def _box(name: str) -> Strategy:
    sides = st.tuples(st.integers(2, 5), st.integers(2, 5))
    spellings = st.sampled_from(["", ":rows={0}", ":cols={1}", ":rows={0},cols={1}"])
    return st.tuples(sides, spellings).map(
        lambda drawn: (name + drawn[1].format(*drawn[0]), drawn[0][0] * drawn[0][1])
    )


@st.composite
def _moshpit(draw: st.DrawFn, name: str) -> Case:
    side, d = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    return f"{name}:side={side},d={d}", draw(st.integers(1, min(24, side**d)))


@st.composite
def _random_regular(draw: st.DrawFn, name: str) -> Case:
    d = draw(st.integers(2, 8))
    n = draw(st.integers(d + 1, 24).filter(lambda n: n * d % 2 == 0))
    return f"{name}:d={d}", n


@st.composite
def _hosts(draw: st.DrawFn, name: str) -> Case:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    between = draw(st.sampled_from(["ring", "path", "star", "complete"]))
    return f"{name}:sizes={'x'.join(map(str, sizes))},between={between}", sum(sizes)


def _erdos_renyi(name: str) -> Strategy:
    return st.tuples(st.floats(0.5, 1), st.integers(1, 24)).map(
        lambda drawn: (f"{name}:p={drawn[0]!r}", drawn[1])
    )


@st.composite
def _small_world(draw: st.DrawFn, name: str) -> Case:
    k = 2 * draw(st.integers(1, 4))
    p = draw(st.sampled_from([0.0, 0.1, 0.3]))
    return f"{name}:k={k},p={p}", draw(st.integers(k + 1, 24))


def _files(name: str) -> Strategy:
    return st.sampled_from([(spec, n) for spec, n in FIXED if spec.startswith(name)])


def _trees(name: str) -> Strategy:
    inner = [case for case in FIXED if case[0].partition(":")[0] not in RANDOM_ROUNDS]
    return st.sampled_from(inner).map(lambda case: (f"{name}:of={case[0]}", case[1]))


_CASES: Mapping[str, Callable[[str], Strategy]] = MappingProxyType(
    {
        "grid": _box,
        "torus": _box,
        "hypercube": _power_of_two,
        "hypercube-matching": _power_of_two,
        "moshpit": _moshpit,
        "spanning-tree": _trees,
        "p-peer-exponential": _with("p", st.integers(1, 5)),
        "base-k": _with("k", st.integers(1, 5)),
        "random-regular": _random_regular,
        "erdos-renyi": _erdos_renyi,
        "small-world": _small_world,
        "scale-free": _with("m", st.integers(1, 5)),
        "random-groups": _with("m", st.integers(2, 6), least=0),
        "epidemic": _with("s", st.integers(1, 5)),
        "epidemic-local": _with("s", st.integers(1, 5)),
        **dict.fromkeys(
            ("equi-static", "d-equi-static", "equi-dyn", "od-equi-dyn"),
            _with("m", st.integers(1, 5)),
        ),
        "hosts": _hosts,
        "file": _files,
    }
)


def cases(name: str) -> Strategy:
    """Specs of a family, each with a number of nodes that it can have."""
    return _CASES.get(name, _any_size)(name)
