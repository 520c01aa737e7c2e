"""Where `rumor topology --draw` may write a picture; `rumor.topology.drawing` draws it."""

from pathlib import Path

from ..gossip.errors import ConfigError
from ..topology.drawing import FORMATS, check_size, draw, draw_side_by_side, headline

__all__ = ["check_path", "check_size", "draw", "draw_side_by_side", "headline"]


def check_path(path: Path) -> None:
    """See whether a picture can be written there, before anything long is computed.

    Raises:
        ConfigError: It is a folder, in a folder that does not exist, or of an unknown format.
    """
    ends = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    if not path.name:
        raise ConfigError(f"--draw needs the name of a file that ends in {ends}")
    if path.is_dir():
        raise ConfigError(f"--draw {path}: it is a folder, name a file that ends in {ends}")
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--draw {path}: it must end in {ends}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--draw {path}: name a file in a folder that exists")
