"""A network between local peers in which faults can be made: every peer dials through a proxy.

Each peer has a SOCKS 5 proxy of its own, on loopback, through which it dials all others
(``--socks-proxy``, `PeerConfig.socks_proxy`). So it is known who dials whom, and for each ordered
pair of peers, on all connections between the two, whoever dialled them, bytes can be held up,
delayed and limited, whole messages lost and repeated, and connections reset::

    with Proxies(["a", "b", "c"]) as network:
        start_peer("a", bind="tcp://127.0.0.1:7700", socks_proxy=network.socks_proxy("a"))
        network.listens("a", "tcp://127.0.0.1:7700")
        ...
        cut = network.cut("a", "b", one_way=True)   # nothing from a to b
        network.lift(cut)
        network.limit(4e6, peer="b")                # 4 MB/s to b, and 4 MB/s from b
        network.reset()                             # every connection, wherever it is
        network.counts("a", "b").lost

What was imposed holds when the call returns. A dial to an address of which nobody is known to
listen there passes as it is. Peers must not use shared memory, which goes past all of this.
"""

import asyncio
import socket as sockets
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Self, TypeVar

from ....gossip.transport.addresses import allow_more_files, split_address
from .conditions import Condition, between, from_peer, of_peer, terms
from .connection import Connection
from .pump import Link
from .socks import accept_request

__all__ = ["Counts", "Proxies"]

_T = TypeVar("_T")

_BREATH_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What has happened so far on the way from one peer to another."""

    passed_bytes: int
    messages: int
    """That have begun to pass, or to be lost."""
    lost: int
    doubled: int


class Proxies:
    """The proxies of some peers, and what holds between those. Its methods may be called from any
    thread, until it is closed.

    Args:
        peers: Names of all peers; `add` takes more.
        seed: Of the choice of messages that are lost or doubled.
        who_listens: Asked for the peer that listens at a port of this machine, where `listens`
            was told nothing of it. It is called by the proxies' own thread.
    """

    def __init__(
        self,
        peers: Iterable[str] = (),
        *,
        seed: int = 0,
        who_listens: Callable[[int], str | None] = lambda port: None,
    ) -> None:
        # Two peers have up to four connections, of two files each: 32 peers take 4,000.
        allow_more_files()
        self._seed = seed
        self._who_listens = who_listens
        self._listeners: dict[str, sockets.socket] = {}
        self._peer_at: dict[int, str] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._conditions: list[Condition] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        for peer in peers:
            self.add(peer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and close the proxies."""
        if self._loop.is_closed():
            return
        self._run(self._end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        for listener in self._listeners.values():
            listener.close()

    def add(self, peer: str) -> None:
        """Open a proxy for one more peer."""
        listener = sockets.create_server(("127.0.0.1", 0), backlog=512)
        listener.setblocking(False)
        self._listeners[peer] = listener
        self._run(self._start(self._accept(peer, listener)))

    def socks_proxy(self, peer: str) -> str:
        """HOST:PORT of the proxy through which a peer dials; opened now for one that is new."""
        if peer not in self._listeners:
            self.add(peer)
        host, port = self._listeners[peer].getsockname()
        return f"{host}:{port}"

    def listens(self, peer: str, address: str) -> None:
        """Say where a peer listens, as ``tcp://host:port``; what it said before stays true."""
        self._peer_at[int(split_address(address)[1])] = peer

    def impose(self, condition: Condition) -> Condition:
        """Let something hold, until it is lifted; what is on its way is held up, too.

        Returns:
            The same, to lift it by.
        """
        self._run(self._change([*self._conditions, condition]))
        return condition

    def lift(self, condition: Condition) -> None:
        """End something that was imposed; what it has held up arrives now."""
        self._run(self._change([each for each in self._conditions if each is not condition]))

    def cut(self, peer: str, to: str | None = None, *, one_way: bool = False) -> Condition:
        """Let nothing pass between a peer and another (None: all others).

        Args:
            peer: One end.
            to: The other one.
            one_way: Only what goes from *peer* is held up. No new connection can be made, either,
                as that takes both ways.
        """
        return self.impose(Condition(ways=from_peer(peer, to, one_way=one_way), cut=True))

    def partition(self, groups: Sequence[Collection[str]]) -> Condition:
        """Let nothing pass between groups; peers that none names form one more."""
        return self.impose(Condition(ways=between(groups), cut=True))

    def heal(self) -> None:
        """End all cuts and partitions."""
        self._run(self._change([each for each in self._conditions if not each.cut]))

    def lose(self, rate: float, peer: str | None = None) -> Condition:
        """Lose so many of the messages to and from a peer (None: of all), without a word."""
        return self.impose(Condition(ways=of_peer(peer), loss=rate))

    def duplicate(self, rate: float, peer: str | None = None) -> Condition:
        """Deliver so many of the messages to and from a peer twice, one right after the other."""
        return self.impose(Condition(ways=of_peer(peer), duplicate=rate))

    def delay(self, by_s: float, peer: str | None = None) -> Condition:
        """Let everything to and from a peer come so much later, seconds; its order stays."""
        return self.impose(Condition(ways=of_peer(peer), delay_s=by_s))

    def limit(self, bytes_s: float, peer: str | None = None) -> Condition:
        """Let so many bytes per second pass on each way to and from a peer."""
        return self.impose(Condition(ways=of_peer(peer), bytes_s=bytes_s))

    def reset(self, peer: str | None = None, to: str | None = None) -> int:
        """Reset connections: TCP RST to both sides, and what is on its way is lost.

        Args:
            peer: Those of this peer, whoever dialled them; None for all.
            to: Of these, only those with that peer.

        Returns:
            How many there were.
        """
        return self._run(self._reset({end for end in (peer, to) if end is not None}))

    def counts(self, sender: str, receiver: str) -> Counts:
        """What has happened so far on the way from one peer to another."""
        return self._run(self._count(sender, receiver))

    def connections(self, peer: str, other: str) -> int:
        """How many there are now between two peers, whoever dialled them."""
        return sum({*pair} == {peer, other} for pair in list(self._ends.values()))

    def _run(self, does: Coroutine[Any, Any, _T]) -> _T:
        """Do something in the loop's thread, where all else is done, and wait for it."""
        return asyncio.run_coroutine_threadsafe(does, self._loop).result()

    async def _start(self, does: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(does)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._ends.pop(task, None)

    async def _accept(self, peer: str, listener: sockets.socket) -> None:
        while True:
            try:
                client, _ = await self._loop.sock_accept(listener)
            except OSError:
                # There are no more files to be had, or the client is gone already.
                await asyncio.sleep(_BREATH_S)
                continue
            client.setblocking(False)
            client.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
            await self._start(self._serve(peer, client))

    async def _serve(self, dialer: str, client: sockets.socket) -> None:
        connection, ended = None, False
        try:
            target = await accept_request(client)
            listener = self._peer_at.get(target.port) or self._who_listens(target.port)
            there, back = Link(Random()), Link(Random())
            if listener is not None:
                there, back = self._link(dialer, listener), self._link(listener, dialer)
                task = asyncio.current_task()
                assert task is not None
                self._ends[task] = dialer, listener
            connection = Connection(client, target, there, back)
            await connection.carry()
            ended = True
        except (OSError, EOFError, ValueError):
            pass  # it ended early; whoever dialled will again
        finally:
            if connection is not None:
                connection.close(reset=not ended)
            client.close()

    def _link(self, sender: str, receiver: str) -> Link:
        pair = sender, receiver
        if pair not in self._links:
            link = self._links[pair] = Link(Random(f"{self._seed} {sender} {receiver}"))
            link.impose(terms(self._conditions, *pair))
        return self._links[pair]

    async def _change(self, conditions: list[Condition]) -> None:
        self._conditions = conditions
        for pair, link in self._links.items():
            link.impose(terms(conditions, *pair))

    async def _reset(self, ends: set[str]) -> int:
        broken = [task for task, pair in self._ends.items() if ends <= {*pair}]
        await self._end(broken)
        return len(broken)

    async def _end(self, tasks: Collection["asyncio.Task[None]"]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _end_all(self) -> None:
        while self._tasks:
            await self._end(list(self._tasks))

    async def _count(self, sender: str, receiver: str) -> Counts:
        link = self._link(sender, receiver)
        return Counts(
            passed_bytes=link.passed_bytes,
            messages=link.messages,
            lost=link.lost,
            doubled=link.doubled,
        )
