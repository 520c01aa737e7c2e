"""The network of simulated swarms, under virtual time."""

from collections.abc import Callable, Sequence

import pytest

from rumor.gossip.wire.codec import Buffer, decode, encode
from rumor.sim.kernel.clock import Clock
from rumor.sim.models.links import address_of
from rumor.sim.models.network import NetworkConfig
from rumor.sim.swarm.post import Post

from .post import Letter

__all__ = ["CALM", "WORST", "SwarmPost"]

CALM = NetworkConfig(latency_s=0.005, jitter=0.1, bandwidth_mbit=1000)

WORST = NetworkConfig(
    latency_s=0.05, jitter=0.5, bandwidth_mbit=1000, loss=0.05, duplicates=0.05, reorder=0.3
)

_SETTLED_S = 5.0
_TIMEOUT_S = 100.0
_STEP_S = 0.01


class _End:
    """A life of a process."""

    def __init__(self, post: Post, name: str) -> None:
        self.name = name
        self.came: list[Letter] = []
        self.running = True
        self.unread: list[Letter] | None = None
        """What has come while it reads nothing; None while it reads."""
        self._post = post

    def greet(self, name: str, message: Letter) -> bool:
        parts = encode(message.envelope, message.frame)
        return self._post.greet(self.name, address_of(name), parts)

    def send(self, name: str, message: Letter) -> bool:
        return self._post.send(self.name, name, encode(message.envelope, message.frame))

    def arrive(self, parts: Sequence[Buffer]) -> None:
        message = Letter(decode(parts), bytes(parts[1]) if len(parts) > 1 else b"")
        (self.came if self.unread is None else self.unread).append(message)


class SwarmPost:
    """Simulated processes on `rumor.sim`'s network.

    Args:
        names: All processes there will be.
        config: What the network is like.
        seed: Of its chances.
    """

    takes_unread_max: int | None = None

    def __init__(self, names: Sequence[str], config: NetworkConfig = CALM, seed: int = 0) -> None:
        self._clock = Clock()
        self._post = Post(self._clock, config, names, seed)
        self._ends: dict[str, _End] = {}

    def open(self, name: str, *, listens: bool = True) -> _End:
        if not listens:
            pytest.skip("workers of a simulated swarm all listen")
        end = self._ends[name] = _End(self._post, name)
        self._post.listeners[name] = end
        return end

    def meet(self, one: str, other: str) -> None:
        pass  # names are addresses here

    def kill(self, name: str) -> None:
        self._ends[name].running = False

    def stand_still(self, name: str) -> None:
        self._ends[name].unread = []

    def go_on(self, name: str) -> None:
        end = self._ends[name]
        end.came += end.unread or []
        end.unread = None

    def cut(self, source: str, to: str) -> None:
        self._post.cut((source, to))

    def heal(self) -> None:
        for link in self._post.cuts:
            self._post.heal(link)

    def reset(self, one: str, other: str) -> None:
        for link in ((one, other), (other, one)):
            self._post.cut(link)
            self._post.heal(link)

    def reset_in_transfer(self, source: str, to: str, send: Callable[[], object]) -> None:
        send()
        self._clock.run(self._clock.now + 2 * _STEP_S)
        self.reset(source, to)

    def settle(self) -> None:
        self._clock.run(self._clock.now + _SETTLED_S)

    def until(self, condition: Callable[[], bool]) -> None:
        give_up_s = self._clock.now + _TIMEOUT_S
        while not condition():
            assert self._clock.now < give_up_s, "it never came"
            self._clock.run(self._clock.now + _STEP_S)

    def close(self) -> None:
        pass
