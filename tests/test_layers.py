"""The import rules of the layers, checked on the syntax tree of every module."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from .layout import modules

MODULES = modules()
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}

LAYERS_BELOW: dict[str, set[str]] = {
    "gossip": set(),
    "topology": {"gossip"},
    "train": {"gossip", "topology"},
    "sim": {"gossip", "topology", "train"},
    "cli": {"gossip", "topology", "train", "sim"},
}

# Layers with a fixed set of dependencies, and the modules that may have more.
THIRD_PARTY = {"topology": {"networkx", "numpy", "scipy"}, "gossip": {"numpy"}}
THIRD_PARTY_OF_MODULE = {
    "rumor.gossip.wire.codec": {"msgpack", "xxhash"},
    "rumor.gossip.transport.*": {"zmq"},
    "rumor.gossip.transport.keys.*": {"cryptography"},
    "rumor.topology.drawing": {"matplotlib"},
}

# Time and randomness are arguments of the core, and other code executes its decisions.
IMPURE = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "subprocess",
    "threading",
    "datetime",
    "random",
    "secrets",
    "time",
    "uuid",
    "select",
    "selectors",
    "signal",
    "socket",
    "socketserver",
    "ssl",
}

# One transport, one wire format, and one place that parses arguments, except for developers' tools,
# which run as ``python -m``.
BANNED = {
    "train": {"argparse", "msgpack", "rich", "typer", "zmq"},
    "sim": {"argparse", "msgpack", "rich", "typer", "zmq"},
    "cli": {"msgpack", "zmq"},
}

# These libraries run code that arrives as data.
UNPICKLERS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "torch.load"}


def imports(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[str]:
    """Yield the absolute dotted name of every import in a module's *tree*, at any depth."""
    above = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = above[: len(above) - node.level + 1] if node.level else []
            source = [*source, *(node.module or "").split(".")]
            yield from (".".join([*filter(None, source), alias.name]) for alias in node.names)


# Several tests look at each module.
@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


@cache
def imported(module: str) -> frozenset[str]:
    is_package = MODULES[module].name == "__init__.py"
    return frozenset(imports(tree_of(module), module, is_package=is_package))


def outside(module: str) -> set[str]:
    """Return the top-level names that *module* imports from outside rumor."""
    return {name.split(".")[0] for name in imported(module)} - {"rumor"}


def matching(*patterns: str) -> list[str]:
    return [name for name in MODULES if any(fnmatch(name, pattern) for pattern in patterns)]


def layer_of(module: str) -> str:
    return module.split(".")[1]


def violations(among: Iterable[str], check: Callable[[str], Set[str]]) -> dict[str, Set[str]]:
    """Return the violations of each module that has any."""
    return {module: found for module in among if (found := check(module))}


def test_a_module_imports_only_its_own_and_lower_layers() -> None:
    def used(module: str) -> set[str]:
        names = [name.split(".") for name in imported(module)]
        return {name[1] for name in names if name[0] == "rumor" and len(name) > 1}

    assert not violations(MODULES, lambda m: used(m) - {layer_of(m)} - LAYERS_BELOW[layer_of(m)])


def test_topology_imports_only_errors_and_specs_of_gossip() -> None:
    def used(module: str) -> set[str]:
        names = {name for name in imported(module) if name.startswith("rumor.gossip.")}
        return {
            n for n in names if not n.startswith(("rumor.gossip.errors.", "rumor.gossip.specs."))
        }

    assert not violations(matching("rumor.topology*"), used)


def test_lower_layers_import_only_allowed_libraries() -> None:
    def needless(module: str) -> set[str]:
        allowed = set(THIRD_PARTY[layer_of(module)])
        for pattern, extra in THIRD_PARTY_OF_MODULE.items():
            if fnmatch(module, pattern):
                allowed |= extra
        return outside(module) - sys.stdlib_module_names - allowed

    assert not violations(matching("rumor.gossip*", "rumor.topology*"), needless)


def test_the_core_imports_no_clock_randomness_or_network() -> None:
    core = set(matching("rumor.gossip*", "rumor.topology*")) - set(
        matching("rumor.gossip.transport.*")
    )
    assert not violations(core, lambda module: outside(module) & IMPURE)


def test_upper_layers_import_no_banned_library() -> None:
    upper = matching("rumor.train*", "rumor.sim*", "rumor.cli*")

    def banned(module: str) -> set[str]:
        allowed = {"argparse"} if module.endswith(".__main__") else set()
        return outside(module) & BANNED[layer_of(module)] - allowed

    assert not violations(upper, banned)


def test_the_launcher_imports_the_simulator_only_for_plots() -> None:
    def simulating(module: str) -> set[str]:
        names = {name for name in imported(module) if name.startswith("rumor.sim.")}
        return {name for name in names if not name.startswith("rumor.sim.results.live_plots")}

    assert not violations(matching("rumor.cli.launch*"), simulating)


# A study's trials run in processes of its own machine or cluster, which joblib, Dask and Ray reach
# by pickling. What crosses is text and the name of one function; peers never see it. A simulation
# keeps workers' attributes as bytes that it has written itself, and that never leave its memory.
UNPICKLERS_OF_MODULE = {
    "rumor.sim.study.execution.backends": {"joblib"},
    "rumor.sim.batched.steppers.vmapped": {"pickle"},
}


def test_no_module_unpickles_foreign_data() -> None:
    def unpicklers(module: str) -> set[str]:
        used = outside(module) | imported(module) | attributes(tree_of(module))
        return used & (UNPICKLERS - UNPICKLERS_OF_MODULE.get(module, set()))

    assert not violations(MODULES, unpicklers)


def test_no_module_draws_from_global_random_streams() -> None:
    drawing = matching("rumor.gossip*", "rumor.train*", "rumor.sim*")
    assert not violations(drawing, lambda module: drawn_globally(tree_of(module)))


@cache
def attributes(tree: ast.AST) -> frozenset[str]:
    """Return every attribute in *tree*, with the full expression in front of it."""
    return frozenset(
        ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    )


def drawn_globally(tree: ast.AST) -> set[str]:
    """Return functions in *tree* that draw from Python's or numpy's global streams."""
    names = set(attributes(tree))
    names |= {name for name in imports(tree, "rumor.gossip.x", is_package=False)}
    return {name for name in names if re.fullmatch(r"((np|numpy)\.)?random\.[a-z_]+", name)} - {
        "random.seed",
        "random.getstate",
        "random.setstate",
        "np.random.seed",
        "np.random.get_state",
        "np.random.set_state",
    }


def for_types(tree: ast.AST, module: str, *, is_package: bool) -> Set[str]:
    """Return the names that *tree* imports only for type checkers."""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    typed = Counter(
        name for block in blocks for name in imports(block, module, is_package=is_package)
    )
    return typed.keys() - (Counter(imports(tree, module, is_package=is_package)) - typed).keys()


@cache
def importers() -> "nx.DiGraph[str]":
    """Return the graph of imports, without imports for types inside a sub-package."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module in MODULES:
        typed = for_types(tree_of(module), module, is_package=module in PACKAGES)
        for name in imported(module):
            target = nearest_module(name)
            is_own = name in typed and home(module) == home(target) is not None
            if target not in (None, module) and not is_own:
                graph.add_edge(module, target)
    return graph


def home(module: str | None) -> str | None:
    """Return the sub-package of a module, such as ``gossip.wire``; None if it is in none."""
    parts = (module or "").split(".")
    return None if len(parts) < 4 else ".".join(parts[1:3])


def packages_of(graph: "nx.DiGraph[str]", is_package: Set[str]) -> "nx.DiGraph[str]":
    """Return the graph of imports between sub-packages, without those of their ``__init__``."""
    pairs = (
        [None if module in is_package else home(module) for module in edge] for edge in graph.edges
    )
    return nx.DiGraph((a, b) for a, b in pairs if None not in (a, b) and a != b)


def test_modules_have_no_import_cycle() -> None:
    assert not list(nx.simple_cycles(importers()))


def test_sub_packages_have_no_import_cycle() -> None:
    graph = packages_of(importers(), PACKAGES)
    assert graph.has_edge("gossip.protocol", "gossip.exchange")
    assert not list(nx.simple_cycles(graph))


FOLDERS = sorted({path.parent for path in MODULES.values()})
NOT_COUNTED = {"__init__.py", "__main__.py", "__pycache__", "py.typed"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: "/".join(folder.parts[-2:]))
def test_a_folder_has_at_most_twelve_entries(folder: Path) -> None:
    # Compiled files may remain in a removed folder.
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    entries = sorted({path.relative_to(folder).parts[0] for path in files} - NOT_COUNTED)
    assert len(entries) <= 12, entries


def nearest_module(name: str) -> str | None:
    """Return the module that *name* is or that defines it; None outside rumor."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None
