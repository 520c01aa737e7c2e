"""Strict builders: each takes n and parameters at their word, or says what would fit."""

from math import prod

from .base_k import base_k
from .equitopo import BasisMatching, BasisPush, draw_shifts, equi_static
from .errors import TopologyError
from .exponentials import hypercube_matching, p_peer_exponential
from .family import Built, Site, Values
from .files import read_graph
from .hosts import between_hosts, hosts, hosts_in_turn, parse_links
from .lattices import complete, grid, hypercube, sides, torus
from .random_graphs import erdos_renyi, p_connected, random_regular, scale_free, small_world
from .rounds import epidemic, epidemic_local, random_groups
from .schedule import Schedule
from .spanning import spanning_tree

__all__ = [
    "build_base_k",
    "build_d_equi_static",
    "build_epidemic",
    "build_epidemic_local",
    "build_equi_dyn",
    "build_equi_static",
    "build_erdos_renyi",
    "build_file",
    "build_grid",
    "build_hosts",
    "build_hypercube",
    "build_hypercube_matching",
    "build_od_equi_dyn",
    "build_p_peer",
    "build_random_groups",
    "build_random_regular",
    "build_scale_free",
    "build_small_world",
    "build_spanning_tree",
    "build_torus",
    "check_hosts",
    "host_sizes",
    "hosts_of",
    "size_of_box",
    "size_of_file",
    "size_of_hosts",
    "whole",
]


def whole(values: Values, name: str) -> int:
    """A parameter that is a whole number."""
    return int(values[name])


def build_grid(site: Site, values: Values) -> Built:
    """A grid, as near to a square as it can be unless told."""
    rows, columns = _box(site.n, values)
    if not values and site.n > 1 and rows < 2:
        raise TopologyError(
            f"n must be rows x cols, both at least 2: {_composites_near(site.n)} would do"
        )
    return Built(schedule=grid(site.n, columns))


def build_torus(site: Site, values: Values) -> Built:
    """A torus of at least two rows and two columns."""
    rows, columns = _box(site.n, values)
    if min(rows, columns) < 2:
        raise TopologyError(
            f"rows={rows}, cols={columns}: both must be at least 2"
            if values
            else f"n must be rows x cols, both at least 2: {_composites_near(site.n)} would do"
        )
    return Built(schedule=torus(rows, columns))


def size_of_box(values: Values) -> int | None:
    """rows x cols, where both are given."""
    if "rows" in values and "cols" in values:
        return int(values["rows"]) * int(values["cols"])
    return None


def build_hypercube(site: Site, values: Values) -> Built:
    """A whole hypercube."""
    return Built(schedule=hypercube(_dimensions(site.n)))


def build_hypercube_matching(site: Site, values: Values) -> Built:
    """A whole hypercube, one dimension each round."""
    return Built(schedule=hypercube_matching(_dimensions(site.n)))


def build_p_peer(site: Site, values: Values) -> Built:
    """p pushes each round."""
    p = _below_n(site, "p", whole(values, "p"))
    return Built(schedule=p_peer_exponential(site.n, p))


def build_base_k(site: Site, values: Values) -> Built:
    """Any n, and any k that leaves somebody to link to."""
    return Built(schedule=base_k(site.n, _below_n(site, "k", whole(values, "k"))))


def build_random_regular(site: Site, values: Values) -> Built:
    """A simple connected graph in which all have d neighbors."""
    n, d = site.n, _below_n(site, "d", whole(values, "d"))
    if n * d % 2 and n > 1:
        raise TopologyError(f"d={d}: n x d must be even, as each edge has two ends")
    if d == 1 and n > 2:
        raise TopologyError("d=1: pairs do not connect more than two nodes, d must be at least 2")
    return Built(schedule=complete(n) if d >= n - 1 else random_regular(n, d, site.seed))


def build_erdos_renyi(site: Site, values: Values) -> Built:
    """A connected one, or none."""
    p = float(values.get("p", p_connected(site.n)))
    return Built(schedule=erdos_renyi(site.n, p, site.seed))


def build_small_world(site: Site, values: Values) -> Built:
    """k even and below n."""
    k, p = _below_n(site, "k", whole(values, "k")), float(values["p"])
    return Built(schedule=small_world(site.n, min(k, site.n - 1), p, site.seed))


def build_scale_free(site: Site, values: Values) -> Built:
    """m links for each newcomer."""
    m = _below_n(site, "m", whole(values, "m"))
    return Built(schedule=complete(1) if site.n == 1 else scale_free(site.n, m, site.seed))


def build_random_groups(site: Site, values: Values) -> Built:
    """Groups of m, of one fewer where n is no multiple."""
    m = whole(values, "m")
    # As elsewhere, a lonely node is fine with anything.
    if m > site.n > 1:
        raise TopologyError(f"m={m}: it must be at most n")
    return Built(schedule=random_groups(site.n, m, site.seed))


def build_epidemic(site: Site, values: Values) -> Built:
    """s targets, and s arrivals, each round."""
    s = _below_n(site, "s", whole(values, "s"))
    return Built(schedule=epidemic(site.n, s, site.seed))


def build_epidemic_local(site: Site, values: Values) -> Built:
    """s targets each round."""
    s = _below_n(site, "s", whole(values, "s"))
    return Built(schedule=epidemic_local(site.n, s, site.seed))


def build_equi_static(site: Site, values: Values) -> Built:
    """m shifts, both ways."""
    return Built(schedule=equi_static(site.n, _shifts(site, values), one_way=False))


def build_d_equi_static(site: Site, values: Values) -> Built:
    """m shifts, one way."""
    return Built(schedule=equi_static(site.n, _shifts(site, values), one_way=True))


def build_equi_dyn(site: Site, values: Values) -> Built:
    """One of m shifts each round, in pairs."""
    return Built(schedule=BasisMatching(n=site.n, shifts=_shifts(site, values), seed=site.seed))


def build_od_equi_dyn(site: Site, values: Values) -> Built:
    """One of m shifts each round."""
    return Built(schedule=BasisPush.over(site.n, _shifts(site, values), site.seed))


def build_hosts(site: Site, values: Values) -> Built:
    """Hosts as they were listed."""
    return Built(schedule=hosts_of(host_sizes(values), values))


def hosts_of(sizes: list[int], values: Values) -> Schedule:
    """Hosts of given sizes, linked as the spec says."""
    between, links = str(values["between"]), values.get("links")
    if links is not None:
        return hosts(sizes, parse_links(str(links), len(sizes)))
    if between != "one-peer-exponential":
        return hosts(sizes, between_hosts(between, len(sizes)))
    return hosts_in_turn(len(sizes), sizes[0])


def check_hosts(values: Values) -> None:
    """Refuse hosts that no number of nodes would put right.

    Raises:
        TopologyError: Links are given in two ways, or do not connect all hosts, or hosts that take
            turns are not of one size.
    """
    sizes, links = host_sizes(values), values.get("links")
    if links is not None:
        if "between" in values:
            raise TopologyError("links= and between= both say how hosts are linked: give one")
        parse_links(str(links), len(sizes))
    if values.get("between") == "one-peer-exponential" and len(set(sizes)) > 1:
        raise TopologyError(
            f"between=one-peer-exponential: hosts must be of one size, not {values['sizes']}"
        )


def host_sizes(values: Values) -> list[int]:
    """Nodes of each host."""
    return [int(part) for part in str(values["sizes"]).split("x")]


def size_of_hosts(values: Values) -> int:
    """Nodes of all hosts."""
    return sum(host_sizes(values))


def build_file(site: Site, values: Values) -> Built:
    """All nodes of a file."""
    read = read_graph(str(values["path"]), str(values["weights"]))
    return Built(schedule=read.schedule, names=read.names, bandwidth=read.bandwidth)


def size_of_file(values: Values) -> int:
    """Nodes of a file, which is read for it."""
    return len(read_graph(str(values["path"]), str(values["weights"])).names)


def build_spanning_tree(site: Site, values: Values) -> Built:
    """A tree inside the topology that ``of=`` names."""
    of = str(values["of"])
    try:
        inner = site.inside(of)
    except TopologyError as error:
        raise TopologyError(f"of={of}: {error}") from None
    if inner.schedule.period is None:
        raise TopologyError(f"of={of}: its rounds are random, a tree needs links that stay")
    return Built(schedule=spanning_tree(inner.schedule), names=inner.names)


def _box(n: int, values: Values) -> tuple[int, int]:
    if not values:
        return sides(n)
    # One of the two may be left out.
    cells = prod(int(value) for value in values.values())
    if n % cells or (len(values) == 2 and n != cells):
        given = ", ".join(f"{name}={value}" for name, value in values.items())
        raise TopologyError(
            f"{given}: n must be {'' if len(values) == 2 else 'a multiple of '}{cells}"
        )
    rows = int(values.get("rows", n // cells))
    return rows, n // rows


def _composites_near(n: int) -> str:
    candidates = (m for distance in range(1, n + 4) for m in (n - distance, n + distance))
    near = [m for m in candidates if m >= 4 and min(sides(m)) >= 2][:2]
    return " or ".join(f"n={m}" for m in sorted(near))


def _dimensions(n: int) -> int:
    # numpy's numbers have no bit_length.
    dimensions = int(n).bit_length() - 1
    if n != 2**dimensions:
        raise TopologyError(
            f"n must be a power of 2: n={2**dimensions} or n={2 ** (dimensions + 1)} would do"
        )
    return dimensions


def _below_n(site: Site, name: str, value: int) -> int:
    # A lonely node has nobody to link to, whatever was asked for.
    if value >= site.n and site.n > 1:
        raise TopologyError(f"{name}={value}: it must be below n")
    return value


def _shifts(site: Site, values: Values) -> tuple[int, ...]:
    m = _below_n(site, "m", whole(values, "m"))
    return draw_shifts(site.n, min(m, site.n - 1), site.seed)
