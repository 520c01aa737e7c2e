"""Which source files a module is made of: its own, and those of all that it imports."""

import ast
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from ...gossip.errors import ConfigError

__all__ = ["hash_of_files", "sources_of"]

DIGEST_BYTES = 16

# Where statements have statements inside.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")

Find = Callable[[str], Path | None]
"""The source of a module by its dotted name; None for one that is not looked into."""


def sources_of(module: str, find: Find) -> dict[str, Path]:
    """Find a module's sources, by what their syntax trees import, at any depth.

    What only type checkers import does not count; what is imported by a name that is put together
    at run time is not seen.

    Args:
        module: Its dotted name.
        find: Where modules lie.

    Returns:
        Source files by dotted name, in the order of these.

    Raises:
        ConfigError: One cannot be read, or is not Python.
    """
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        for name in _with_packages(waiting.pop()):
            path = None if name in found else find(name)
            if path is not None:
                found[name] = path
                waiting += _imports(_tree(path), name, is_package=path.name == "__init__.py")
    return dict(sorted(found.items()))


def hash_of_files(files: dict[str, Path]) -> str:
    """Hash what files contain, and what they are called.

    Returns:
        32 hexadecimal digits (BLAKE2b).

    Raises:
        ConfigError: One cannot be read.
    """
    hash = blake2b(digest_size=DIGEST_BYTES)
    for name, path in sorted(files.items()):
        content = _read(path)
        # Lengths, so that no two lists of files look alike.
        hash.update(f"{len(name)} {name} {len(content)} ".encode())
        hash.update(content)
    return hash.hexdigest()


def _with_packages(module: str) -> Iterator[str]:
    """A module, and the packages that it lies in: importing it runs them all."""
    parts = module.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _imports(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[str]:
    """Absolute names of all that a module imports; whether one is a module is for others to see."""
    above = module.split(".") if is_package else module.split(".")[:-1]
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source: Sequence[str] = above[: len(above) - node.level + 1] if node.level else []
            stem = ".".join([*source, *filter(None, [node.module])])
            yield from (f"{stem}.{alias.name}" if stem else alias.name for alias in node.names)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements but those that only type checkers see."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in _BLOCKS:
            if not (name == "body" and _is_for_types(node)):
                waiting += getattr(node, name, ())


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _tree(path: Path) -> ast.AST:
    try:
        return ast.parse(_read(path))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{path} is not Python: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
