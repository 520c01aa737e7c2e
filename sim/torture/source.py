"""Which code it is that runs: version, and commit where that can be told."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["commit", "release"]


def release() -> str:
    """The installed version; empty where nothing is installed."""
    try:
        return version("rumor")
    except PackageNotFoundError:
        return ""


def commit(folder: Path = Path(__file__).parents[2]) -> str | None:
    """The commit that is checked out; None where this is no checkout.

    Args:
        folder: Where ``.git`` lies.
    """
    git = folder / ".git"
    try:
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (git / name).is_file():
            return (git / name).read_text(encoding="utf-8").strip()
        packed = (git / "packed-refs").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
