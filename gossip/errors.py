"""All errors, as one tree, and the "did you mean" hint.

RumorError                         base; catch this at the edge
├─ ConfigError (also ValueError)   a setting is out of range: names the field, the value, the range
├─ LocalProtocolError              we called the core out of order: a bug of ours; state unchanged
├─ RemoteProtocolError             a peer broke the protocol; carries .sender; state unchanged
│   ├─ DecodeError                 not our bytes, or too many of them
│   └─ IncompatiblePeer            other protocol version, model schema or swarm
├─ TransportError                  sockets failed
└─ TrainingError                   loss or parameters not finite, task could not be built
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "ConfigError",
    "DecodeError",
    "IncompatiblePeer",
    "LocalProtocolError",
    "RemoteProtocolError",
    "RumorError",
    "TrainingError",
    "TransportError",
    "did_you_mean",
    "how_to_install",
]


class RumorError(Exception):
    """Base of every error that rumor raises on purpose."""


class ConfigError(RumorError, ValueError):
    """A setting is out of range; nothing was started."""


class LocalProtocolError(RumorError):
    """The core was called out of order, which is a bug of ours; its state is unchanged."""


class RemoteProtocolError(RumorError):
    """A peer broke the protocol; its message was dropped and our state is unchanged."""

    def __init__(self, reason: str, sender: str | None = None) -> None:
        super().__init__(reason)
        self.sender = sender


class DecodeError(RemoteProtocolError):
    """Bytes that are not a message of this protocol, or too many of them; state unchanged."""


class IncompatiblePeer(RemoteProtocolError):
    """A peer speaks another version, trains another model or belongs to another swarm."""


class TransportError(RumorError):
    """A socket could not be opened or used."""


class TrainingError(RumorError):
    """Loss or parameters are not finite, or a task or checkpoint cannot be used."""


def did_you_mean(name: str, known: Iterable[str], otherwise: str = ".") -> str:
    """Return the end of an "unknown name" message: the closest known name, or *otherwise*."""
    close = get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else otherwise


def how_to_install(extra: str) -> str:
    """Return the end of a "not installed" message."""
    return f"pip install -e '.[{extra}]' in a clone of rumor"
