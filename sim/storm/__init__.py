"""Storms: what goes wrong with real fleets, drawn as fault schedules for a swarm of any size."""

from .storms import STORMS, Drawn, Event, Storm, StormNetwork, list_storms, read_storm

__all__ = ["STORMS", "Drawn", "Event", "Storm", "StormNetwork", "list_storms", "read_storm"]
