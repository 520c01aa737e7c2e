"""Published tables, by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ..results import Result
from .averaging import reproduce_base_k, reproduce_equitopo, reproduce_moshpit
from .noise import reproduce_noise
from .relaysgd import reproduce_relaysgd
from .scaffe import reproduce_scaffe
from .shmcaffe import reproduce_shmcaffe
from .theano_mpi import reproduce_theano_mpi, reproduce_theano_mpi_rules

__all__ = ["REPRODUCTIONS"]

REPRODUCTIONS: Final[Mapping[str, Callable[..., Result]]] = MappingProxyType(
    {
        "relaysgd": reproduce_relaysgd,
        "moshpit": reproduce_moshpit,
        "noise": reproduce_noise,
        "base-k": reproduce_base_k,
        "equitopo": reproduce_equitopo,
        "theano-mpi": reproduce_theano_mpi,
        "theano-mpi-rules": reproduce_theano_mpi_rules,
        "s-caffe": reproduce_scaffe,
        "shmcaffe": reproduce_shmcaffe,
    }
)
"""Tables that can be made again, by the name that people type.

Each takes ``quick``: a bounded share of it, in seconds.
"""
