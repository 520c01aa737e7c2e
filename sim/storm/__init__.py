"""Storms: failures of real fleets, drawn as fault schedules for a swarm of any size."""

from .storms import STORMS, Storm, draw_storm, list_storms, read_storm

__all__ = ["STORMS", "Storm", "draw_storm", "list_storms", "read_storm"]
