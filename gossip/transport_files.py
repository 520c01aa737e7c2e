"""Open files, of which every socket takes two: how many there may be."""

import resource
from typing import Final

__all__ = ["allow_more_files", "sockets_max"]

_FILES_WANTED: Final = 65_536
_SOCKETS_MAX: Final = 8192


def allow_more_files() -> None:
    """Let this process, and those that it starts, open more files, as far as it may decide that.

    A neighbor takes two sockets, which are four files, and as many where it dials as well: the
    usual 1,024 are not enough for 128 neighbors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def sockets_max() -> int:
    """How many sockets a process may have, for the files that it may open."""
    # A socket that dials takes two files. As many are left for those who dial us, and for others.
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        _SOCKETS_MAX if files_max == resource.RLIM_INFINITY else min(_SOCKETS_MAX, files_max // 4)
    )
