"""What the network does to messages, everywhere or on some links, always or for a while."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...gossip import PeerId
from ..faults import Fault

__all__ = ["CALM", "SPELLS", "Sky", "Weather"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What the network does to messages; rates are probabilities."""

    loss: float = 0.0
    duplicates: float = 0.0
    replays: float = 0.0
    """Of a further copy that arrives when it is old, perhaps at another life."""
    replay_s_max: float = 10.0
    """How old, at most; most of them are far younger."""
    delay_s: float = 0.01
    """Scale of a heavy-tailed delay, so that messages overtake one another."""
    tells: bool = False
    """Whether a sender hears that there is no way to its peer."""
    orderly: bool = False
    """Whether messages about shares stay in order on each link, as on one socket."""


CALM = Weather()

_RATES: Mapping[str, str] = MappingProxyType(
    {"loss": "loss", "duplicate": "duplicates", "replay": "replays"}
)
_CUTS = ("cut", "partition")

SPELLS = (*_RATES, "delay", *_CUTS)
"""Kinds of fault that are weather: they begin, and may end."""


class Sky:
    """The weather over every link: what there is anyway, and spells on top of it.

    Args:
        base: What there is anyway.
    """

    def __init__(self, base: Weather) -> None:
        self._base = base
        self._spells: list[Fault] = []
        self._over: dict[tuple[PeerId, PeerId], Weather | None] = {}

    @property
    def base(self) -> Weather:
        """What there is anyway; setting it ends all spells."""
        return self._base

    @base.setter
    def base(self, weather: Weather) -> None:
        self._base = weather
        self._spells.clear()
        self._over.clear()

    def begin(self, spell: Fault) -> None:
        """Let a spell, one of `SPELLS` with names for peers, come on top."""
        self._spells.append(spell)
        self._over.clear()

    def end(self, spell: Fault) -> None:
        """Let it pass, if it has not yet."""
        self._spells = [other for other in self._spells if other is not spell]
        self._over.clear()

    def heal(self) -> None:
        """Let all cuts and partitions pass."""
        self._spells = [spell for spell in self._spells if spell.kind not in _CUTS]
        self._over.clear()

    def over(self, source: PeerId, to: PeerId) -> Weather | None:
        """The weather over one link, None where it is cut."""
        link = source, to
        if link not in self._over:
            self._over[link] = self._found(source, to)
        return self._over[link]

    def _found(self, source: PeerId, to: PeerId) -> Weather | None:
        weather = self._base
        for spell in self._spells:
            if spell.kind in _CUTS:
                if _cuts(spell, source, to):
                    return None
            elif spell.peer is None or spell.peer in (source, to):
                weather = _worse(weather, spell)
        return weather


def _worse(weather: Weather, spell: Fault) -> Weather:
    if spell.kind == "delay":
        return replace(weather, delay_s=max(weather.delay_s, spell.by_s or 0.0))
    name = _RATES[spell.kind]
    return replace(weather, **{name: max(getattr(weather, name), spell.rate or 0.0)})


def _cuts(spell: Fault, source: PeerId, to: PeerId) -> bool:
    if spell.kind == "partition":
        return _side(spell, source) != _side(spell, to)
    there = spell.peer == source and spell.to in (None, to)
    back = spell.peer == to and spell.to in (None, source)
    return there or (back and not spell.one_way)


def _side(partition: Fault, peer: PeerId) -> int:
    groups = partition.groups or ()
    return next((at for at, group in enumerate(groups) if peer in group), -1)
