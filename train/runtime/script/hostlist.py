"""Lists of hosts as Slurm writes them: ``node[01-03,7],gpu-a[1-2]b``."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Final

from ....gossip import ConfigError

__all__ = ["HOSTS_MAX", "expand", "expand_counts"]

HOSTS_MAX: Final = 65_536
"""The longest list; a longer one is taken for a mistake."""

_HOSTS: Final = re.compile(r"(?:[^][,\s]|\[[^][]*\])+")
_PART: Final = re.compile(r"\[([^][]*)\]|[^][]+")
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_COUNT: Final = re.compile(r"(\d+)(?:\(x(\d+)\))?", re.ASCII)


def expand(text: str) -> tuple[str, ...]:
    """Write a list of hosts out.

    Args:
        text: Names separated by commas. Each may have brackets with numbers and ranges, several
            times; a range keeps the zeros in front of its first number.

    Raises:
        ConfigError: It is not such a list, or has more than `HOSTS_MAX` hosts.

    >>> expand("node[01-03,7],gpu-a[1-2]b,login")
    ('node01', 'node02', 'node03', 'node7', 'gpu-a1b', 'gpu-a2b', 'login')
    """
    hosts: list[str] = []
    # Joined again, what was found must be the text: else something in it was passed over.
    names = _HOSTS.findall(text)
    if not names or ",".join(names) != text:
        raise ConfigError(f"{text!r} is no list of hosts such as node[01-03,7],login")
    for name in names:
        for host in _expand_name(name):
            if len(hosts) == HOSTS_MAX:
                raise ConfigError(f"{text!r} names more than {HOSTS_MAX} hosts")
            hosts.append(host)
    return tuple(hosts)


def _expand_name(name: str) -> Iterator[str]:
    parts = [
        [found[0]] if found[1] is None else _numbers(found[1], name)
        for found in _PART.finditer(name)
    ]
    return map("".join, product(*parts))


def _numbers(text: str, name: str) -> list[str]:
    found: list[str] = []
    for each in text.split(","):
        match = _RANGE.fullmatch(each)
        if match is None:
            raise ConfigError(f"{name!r}: {each!r} is no number and no range such as 01-03")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + HOSTS_MAX:
            raise ConfigError(f"{name!r}: the range {each!r} is empty or too long")
        found += [f"{number:0{len(match[1])}}" for number in range(first, last + 1)]
    return found


def expand_counts(text: str) -> tuple[int, ...]:
    """Write counts of tasks per node out, as in ``SLURM_TASKS_PER_NODE``.

    Raises:
        ConfigError: It is not such a list.

    >>> expand_counts("2(x3),1")
    (2, 2, 2, 1)
    """
    counts: list[int] = []
    for each in text.split(","):
        match = _COUNT.fullmatch(each)
        if match is None or int(match[2] or 1) > HOSTS_MAX:
            raise ConfigError(f"{text!r} is no list of counts such as 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)
