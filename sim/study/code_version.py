"""One name for the code that computes cells: other code, another name."""

import json
import platform
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from .sources import DIGEST_BYTES, hash_of_files, sources_of

__all__ = ["code_version", "computing_sources", "source_of", "versions"]

_PACKAGE: Final = "rumor"

# The folder whose subfolders are the import package's subpackages, in a checkout and in an
# installed wheel alike.
_ROOT: Final = Path(__file__).parents[2]

_START: Final = "rumor.sim.study.compute"

# What draws graphs, multiplies matrices and reads data has a say in a result's last bits.
_LIBRARIES: Final = (
    *("cvxpy", "mlxtend", "msgpack", "networkx", "numpy"),
    *("safetensors", "scikit-learn", "scipy", "torch", "xxhash"),
)


@cache
def code_version() -> str:
    """Hash all code that a cell's result depends on.

    These are the sources of what computes a cell and of all that this imports, the versions of
    Python and of the libraries that compute, and what the processor can do. It is found once in a
    process, because what is loaded does not change with the files.

    Returns:
        32 hexadecimal digits (BLAKE2b).
    """
    told = [hash_of_files(computing_sources()), *versions().items()]
    return blake2b(json.dumps(told).encode(), digest_size=DIGEST_BYTES).hexdigest()


@cache
def computing_sources() -> dict[str, Path]:
    """The modules of this project that a cell's result depends on, by dotted name."""
    return sources_of(_START, source_of)


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that compute; empty for one that is not there.

    The processor is among them: sums are rounded otherwise where more numbers are added at once.
    """
    # Not above: whoever only asks for a name need not wait for it.
    import torch

    found = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }
    return found | {name: _version(name) for name in _LIBRARIES}


def source_of(module: str) -> Path | None:
    """The source of one of this project's modules; None for a name that is none."""
    package, *parts = module.split(".")
    if package != _PACKAGE or not parts:
        return None
    path = _ROOT.joinpath(*parts)
    tries = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((source for source in tries if source.is_file()), None)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
