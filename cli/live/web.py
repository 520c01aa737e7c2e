"""A page about a running swarm in the browser: ``rumor top --web``.

The server has a few files, and views as they come (server-sent events). Anyone who can connect may
read; that is why it listens on the loopback interface by default.
"""

import ipaddress
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...gossip.errors import ConfigError
from ..errors import sigterm_as_interrupt
from .recording import Recording

if TYPE_CHECKING:
    from ...train.observe.observer import Observer
    from ...train.observe.view import SwarmView

__all__ = ["Feed", "is_own_host", "parse_place", "serve", "show_page"]

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

# Proxies and firewalls drop idle connections.
_KEEPALIVE_S: Final = 15.0

_CONNECTIONS_MAX: Final = 64


class Feed:
    """Sends each view to all open pages."""

    def __init__(self, view: "SwarmView") -> None:
        self._recording = Recording()
        self._number = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self.add(view)

    def add(self, view: "SwarmView") -> None:
        """Send one more view."""
        with self._changed:
            self.view = view
            self._message = _event("view", self._recording.add(view))
            self._number += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End all streams."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def stream(self) -> Iterator[str]:
        """Yield everything so far, then each view; everything again if a slow reader missed one."""
        seen = -1
        while True:
            with self._changed:
                if seen == self._number and not self._is_closed:
                    self._changed.wait(_KEEPALIVE_S)
                if self._is_closed:
                    return
                if seen == self._number:
                    message = ": nothing new\n\n"
                elif seen == self._number - 1:
                    message = self._message
                else:
                    message = _event("everything", self._recording.everything())
                seen = self._number
            yield message


class _Handler(SimpleHTTPRequestHandler):
    """Answers ``/`` and its files, ``/events``, and ``/status.json``, the last view."""

    # A reader that takes nothing for this long is gone.
    timeout = 2 * _KEEPALIVE_S
    server_version, sys_version = "rumor", ""

    def __init__(self, *args: Any, feed: Feed, names: frozenset[str]) -> None:
        self._feed, self._names = feed, names
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
        if self.path == "/events":
            self._begin("text/event-stream")
            for message in self._feed.stream():
                self.wfile.write(message.encode())
        elif self.path == "/status.json":
            self._begin("application/json")
            self.wfile.write(_json(self._feed.view.to_json()).encode())
        else:
            super().do_GET()

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()


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
    feed = Feed(view)
    server = _Server(listener, partial(_Handler, feed=feed, names=names))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        due_s = time.monotonic()
        while True:
            # A slow poll is followed by a pause, too.
            due_s = max(due_s + every_s, time.monotonic() + every_s / 2)
            time.sleep(due_s - time.monotonic())
            feed.add(poll())
    finally:
        feed.close()
        server.shutdown()
        # Waits until streams have ended.
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


def _event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {_json(value)}\n\n"


def _json(value: Any) -> str:
    # One line: all characters other than ASCII are escaped, including line ends.
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
