"""The files that a cell's result depends on, beside the code of this project."""

import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from ...gossip.errors import ConfigError
from ...topology.spec import Spec, read
from ..config import SimulationConfig
from .code_version import computing_sources, source_of
from .sources import hash_of_files, sources_of

__all__ = ["files_of", "hashes_of"]

# Of a cluster, or a notebook: it lives longer than a study, and imports nothing twice.
_THIS_PROCESS = "this process (start it anew)"


def hashes_of(config: SimulationConfig) -> dict[str, str]:
    """Hash what each file that a cell names contains.

    Returns:
        Hexadecimal hashes, by what the file is to the cell; for the libraries that a task or
        a rule of the user's own imports, their versions.

    Raises:
        ConfigError: One cannot be read, or this process has loaded other code for one.
        TopologyError: The topology is not of the form of one.
    """
    found = {f"{what} {path}": _hash(what, path) for what, path in files_of(config)}
    if ":" in config.task_name:
        found |= _hashes_of_own("task", config.task_name.partition(":")[0])
    if ":" in config.rule_spec.name:
        found |= _hashes_of_own("rule", config.rule_spec.name.partition(":")[0])
    return found


def _hash(what: str, path: Path) -> str:
    try:
        return hash_of_files({"": path})
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None


def files_of(config: SimulationConfig) -> Iterator[tuple[str, Path]]:
    """The files of data that a cell names, and what each is to it.

    Raises:
        TopologyError: The topology is not of the form of one.
    """
    if isinstance(config.faults, str | Path) and not str(config.faults).lstrip().startswith("["):
        yield "faults", Path(config.faults)
    if isinstance(config.network, str) and _is_file(config.network):
        yield "network", Path(config.network)
    if config.pace.startswith("trace:path="):
        yield "pace", Path(config.pace.removeprefix("trace:path="))
    for path in _graphs(read(config.topology)):
        yield "topology", Path(path)


def _graphs(spec: Spec) -> Iterator[str]:
    """Paths of graphs in a spec, and in specs inside it."""
    if spec.name == "file":
        yield str(spec.values["path"])
    for key in spec.family.joins:
        yield from _graphs(read(str(spec.values[key])))


def _is_file(network: str) -> bool:
    # As `read_network` has it, a name that is no file's is one of a preset.
    return network.endswith(".json") or Path(network).is_file()


def _hashes_of_own(what: str, module: str) -> dict[str, str]:
    """Hash the code of a user's task or rule, and tell the versions of the libraries it imports."""
    folder = Path.cwd()
    sources, libraries = _sources_of_own(folder, module)
    now = hash_of_files(sources)
    loaded = {name for name in sources if name in sys.modules}
    if module in loaded and _hash_when_loaded(folder, module) != now:
        raise ConfigError(f"{what} {module}: its code has changed since {_THIS_PROCESS} loaded it")
    for name in loaded:
        path = getattr(sys.modules[name], "__file__", None)
        if path is not None and Path(path).resolve() != sources[name].resolve():
            raise ConfigError(f"{what} {module}: {_THIS_PROCESS} has loaded {path} as {name}")
    told = {f"library {name}": version(name) for name in libraries}
    return {what: now, **told}


@cache
def _hash_when_loaded(folder: Path, module: str) -> str:
    """Called first when a module has just been loaded, and the same from then on."""
    return hash_of_files(_sources_of_own(folder, module)[0])


def _sources_of_own(folder: Path, module: str) -> tuple[dict[str, Path], list[str]]:
    """The modules of a user's task or rule, and the distributions of all others they import."""
    asked: set[str] = set()

    def find(name: str) -> Path | None:
        asked.add(name.partition(".")[0])
        return _find(folder, module.partition(".")[0], name)

    sources = sources_of(module, find)
    own = {name.partition(".")[0] for name in sources}
    known = _distributions()
    found = {name for top in asked - own for name in known.get(top, ())}
    return sources, sorted(found)


def _find(folder: Path, own: str, module: str) -> Path | None:
    """The source of a user's module, or of the package *own* wherever that lies.

    Not those of Python and of libraries, and not those that the code's version tells of.
    """
    top, *parts = module.split(".")
    if top in sys.stdlib_module_names or module in computing_sources():
        return None
    if found := source_of(module) or _inside(folder.joinpath(top, *parts)):
        return found
    places = (place for place in _places(top) if top == own or not _is_library(place))
    return next(filter(None, (_inside(place.joinpath(*parts)) for place in places)), None)


def _inside(path: Path) -> Path | None:
    tries = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((source for source in tries if source.is_file()), None)


def _places(top: str) -> list[Path]:
    """Where a module is installed: its folder, or what would be if it had one."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(place) for place in spec.submodule_search_locations]
    return [Path(spec.origin).with_suffix("")] if spec.has_location and spec.origin else []


@cache
def _distributions() -> Mapping[str, list[str]]:
    """What is installed, by the modules that it brings: it takes a while to find out."""
    return packages_distributions()


def _is_library(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _library_folders())


@cache
def _library_folders() -> frozenset[str]:
    return frozenset(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
