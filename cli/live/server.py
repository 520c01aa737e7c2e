"""The server of a page about a swarm: a few files, and views as they come (server-sent events).

Who may read is whoever can connect; that is why it listens on the loopback interface unless told
otherwise. Pages of other sites must not read along: no answer allows other origins, and a request
is answered only if it names this server by an IP address, as localhost, by the machine's name or by
the one that it was told to listen on. Otherwise a site could point a name of its own at 127.0.0.1
(DNS rebinding).
"""

import asyncio
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .recording import Recording

if TYPE_CHECKING:
    from ...train.observe.view import SwarmView

__all__ = ["Feed", "application", "is_own_host", "serve"]

_PAGE: Final = Path(__file__).parent / "page"

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

# Proxies and firewalls forget connections on which nothing passes.
_KEEPALIVE_S: Final = 15.0

_CONNECTIONS_MAX: Final = 64


class Feed:
    """Hands each view to all pages that are open. For one event loop.

    Args:
        view: The first.
    """

    def __init__(self, view: "SwarmView") -> None:
        self.view = view
        self._recording = Recording()
        self._number = 0
        self._message = ""
        self._changed = asyncio.Event()
        self._is_closed = False
        self.add(view)

    def add(self, view: "SwarmView") -> None:
        """Hand out one more."""
        self.view = view
        self._message = _event("view", self._recording.add(view))
        self._number += 1
        self._wake()

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        self._wake()

    async def stream(self) -> AsyncIterator[str]:
        """Everything so far, then each view; one that a slow reader has missed comes with
        everything again."""
        seen = -1
        while not self._is_closed:
            changed = self._changed
            if seen == self._number - 1:
                seen = self._number
                yield self._message
            elif seen != self._number:
                seen = self._number
                yield _event("everything", self._recording.everything())
            else:
                try:
                    await asyncio.wait_for(changed.wait(), _KEEPALIVE_S)
                except TimeoutError:
                    yield ": nothing new\n\n"

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def application(feed: Feed, names: frozenset[str] = frozenset()) -> ASGIApp:
    """The pages: ``/`` and what belongs to it, ``/events``, and ``/status.json``, the last view.

    Args:
        feed: Where views come from.
        names: Host names, in small letters, by which requests may call this server, too.
    """

    async def events(_: Request) -> Response:
        return StreamingResponse(feed.stream(), media_type="text/event-stream")

    async def status(_: Request) -> Response:
        return Response(_json(feed.view.to_json()), media_type="application/json")

    # Files last: their mount takes all paths that are left.
    files = Mount("/", StaticFiles(directory=_PAGE, html=True))
    routes = [Route("/events", events), Route("/status.json", status), files]
    return _Guard(Starlette(routes=routes), names)


class _Guard:
    """Refuses requests that name another host, and gives every answer the same headers."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if is_own_host(host, self._names):
            await self._app(scope, receive, guarded)
        else:
            words = "This is not the host that you named. Use the address that rumor top printed.\n"
            await PlainTextResponse(words, status_code=421)(scope, receive, guarded)


def is_own_host(host: str, names: frozenset[str] = frozenset()) -> bool:
    """Whether a request may name its host so: only a name can be pointed elsewhere by a stranger.

    >>> is_own_host("127.0.0.1:8000"), is_own_host("[::1]:80"), is_own_host("localhost:8000")
    (True, True, True)
    >>> is_own_host("evil.example:8000"), is_own_host("127.0.0.1.evil.example"), is_own_host("")
    (False, False, False)
    """
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        name = host
    name = name.lower()
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name in names
    return True


class _Server(uvicorn.Server):
    """Ends the streams first: it would wait for their readers to leave."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feed.close()
        await super().shutdown(sockets)


async def serve(
    poll: "Callable[[], SwarmView]",
    view: "SwarmView",
    listener: socket.socket,
    every_s: float,
    names: frozenset[str] = frozenset(),
) -> None:
    """Serve until it is cancelled or interrupted, or *poll* fails.

    Args:
        poll: Asks everybody, and takes its time; called by one thread.
        view: What it said first.
        listener: Listens.
        every_s: From one poll to the next, seconds.
        names: As `application` takes them.

    Raises:
        Exception: Whatever *poll* raises.
    """
    feed = Feed(view)
    config = uvicorn.Config(
        application(feed, names),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=2,
    )
    server = _Server(config, feed)
    watching = asyncio.create_task(_watch(poll, feed, every_s))
    watching.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(poll: "Callable[[], SwarmView]", feed: Feed, every_s: float) -> None:
    loop = asyncio.get_running_loop()
    # Sockets of ZeroMQ are for one thread.
    with ThreadPoolExecutor(1, "observer") as thread:
        due_s = loop.time()
        while True:
            # After a look that took long, the next is not at its heels.
            due_s = max(due_s + every_s, loop.time() + every_s / 2)
            await asyncio.sleep(due_s - loop.time())
            feed.add(await loop.run_in_executor(thread, poll))


def _event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {_json(value)}\n\n"


def _json(value: Any) -> str:
    # One line: all others than ASCII are escaped, line ends among them.
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
