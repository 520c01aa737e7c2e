"""A page about a running swarm in the browser: ``rumor top --web``.

The server has a few files, the last view and a history of views. Anyone who can connect may read;
that is why it listens on the loopback interface by default.
"""

import ipaddress
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...gossip.errors import ConfigError
from ...train.storage.jsonl import finite
from ..errors import sigterm_as_interrupt

if TYPE_CHECKING:
    from ...train.observe.observer import Observer
    from ...train.observe.view import SwarmView

__all__ = ["Page", "is_own_host", "parse_place", "serve", "show_page"]

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

_SAMPLES_MAX: Final = 600
_PEERS_MAX: Final = 256
_CONNECTIONS_MAX: Final = 64


class Page:
    """The content of the page: the last view, and a thinned history of earlier ones."""

    def __init__(self, view: "SwarmView") -> None:
        self.history: tuple[dict[str, Any], ...] = ()
        self._views, self._every = 0, 1
        self.add(view)

    def add(self, view: "SwarmView") -> None:
        """Show one more view."""
        self.view = view
        if self._views % self._every == 0:
            if len(self.history) >= _SAMPLES_MAX:
                # Half of the samples are left, and from now on half as many are added.
                self.history, self._every = self.history[::2], 2 * self._every
            self.history = (*self.history, _sample(view))
        self._views += 1


def _sample(view: "SwarmView") -> dict[str, Any]:
    """Return the state, loss and distance of the members; the page makes the same of a view."""
    members = []
    for peer in view.peers[:_PEERS_MAX]:
        # The last figures of a peer that does not answer any more are out of date.
        found = (peer.figures.get("loss"), peer.distance) if peer.source == "self" else (None, None)
        members.append((peer.id, peer.state, *map(finite, found)))
    return {"time_s": view.time_s, "swarm_step": view.swarm_step, "members": members}


class _Handler(SimpleHTTPRequestHandler):
    """Answers ``/`` and its files, ``/history.json``, and ``/status.json``, the last view."""

    # A reader that takes nothing for this long is gone.
    timeout = 30.0
    server_version, sys_version = "rumor", ""

    def __init__(self, *args: Any, page: Page, names: frozenset[str]) -> None:
        self._page, self._names = page, names
        super().__init__(*args, directory=str(Path(__file__).parent / "page"))

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        # A site that points a name of its own at 127.0.0.1 must not read along (DNS rebinding).
        if is_own_host(self.headers.get("Host", ""), self._names):
            return True
        words = "This is not the host that you named. Use the address that rumor top printed."
        self.send_error(421, words)
        return False

    def do_GET(self) -> None:
        if self.path == "/status.json":
            self._answer(self._page.view.to_json())
        elif self.path == "/history.json":
            self._answer(self._page.history)
        else:
            super().do_GET()

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def _answer(self, value: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(value, allow_nan=False, separators=(",", ":")).encode())


class _Server(ThreadingHTTPServer):
    """Serves at a socket that listens already, with a limited number of connections."""

    def __init__(self, listener: socket.socket, handler: Any) -> None:
        super().__init__(listener.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def verify_request(self, request: Any, client_address: Any) -> bool:
        # Each connection has a thread.
        return threading.active_count() < _CONNECTIONS_MAX

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A reader that disconnects is not an error.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def is_own_host(host: str, names: frozenset[str] = frozenset()) -> bool:
    """True if this host is allowed in a request: a stranger can only redirect other names.

    >>> is_own_host("127.0.0.1:8000"), is_own_host("[::1]:80"), is_own_host("localhost:8000")
    (True, True, True)
    >>> is_own_host("evil.example:8000"), is_own_host("127.0.0.1.evil.example"), is_own_host("")
    (False, False, False)
    """
    name = re.sub(r":\d+$", "", host.lower())
    try:
        ipaddress.ip_address(re.sub(r"^\[(.*)\]$", r"\1", name))
    except ValueError:
        return name == "localhost" or name in names
    return True


def serve(
    poll: "Callable[[], SwarmView]",
    view: "SwarmView",
    listener: socket.socket,
    every_s: float,
    names: frozenset[str] = frozenset(),
) -> None:
    """Serve views from *poll* until interrupted, or until *poll* fails.

    Args:
        poll: Asks all members, and may block; called by this thread.
        view: Its first result.
        listener: Listening socket.
        every_s: Interval between polls, seconds.
        names: Further host names, in lower case, that requests may use for this server.
    """
    page = Page(view)
    server = _Server(listener, partial(_Handler, page=page, names=names))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        due_s = time.monotonic()
        while True:
            # A slow poll is followed by a pause, too.
            due_s = max(due_s + every_s, time.monotonic() + every_s / 2)
            time.sleep(due_s - time.monotonic())
            page.add(poll())
    finally:
        server.shutdown()
        server.server_close()


def parse_place(listen: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``."""
    form = re.fullmatch(r"\[(.+)\]:(\d+)|(.+):(\d+)", listen)
    host, port = (form[1] or form[3], int(form[2] or form[4])) if form else ("", 0)
    if not host or port > 65535:
        raise ConfigError(f"--listen is {listen!r}: write HOST:PORT, such as 127.0.0.1:8000")
    return host, port


def show_page(
    observing: "AbstractContextManager[Observer]", place: tuple[str, int], every_s: float
) -> None:
    """Serve the page until Ctrl-C or SIGTERM, after printing its address."""
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    with observing as observer, socket.create_server(place, family=family) as listener:
        view = observer.poll()
        host, port = listener.getsockname()[:2]
        print(f"http://{f'[{host}]' if ':' in host else host}:{port}/", flush=True)
        names = frozenset({place[0].lower(), socket.gethostname().lower()})
        with suppress(KeyboardInterrupt), sigterm_as_interrupt():
            serve(observer.poll, view, listener, every_s, names)
