"""The server of a page, in a thread, with views that a test provides."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rumor.cli.live.web import serve
from rumor.train.observe.view import SwarmView

from ...waiting import LIMIT_S

__all__ = ["Site", "Stopped", "served"]


class Stopped(Exception):
    """The test is over."""


class Site:
    """A served page, and the views of a swarm that its server gets."""

    def __init__(self, view: SwarmView) -> None:
        self.view = view
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/"
        self.error: BaseException | None = None
        self._is_over = False
        self._polls = 0
        self._polled = threading.Condition()

    def poll(self) -> SwarmView:
        """Return the current view, a second later at each call."""
        with self._polled:
            self._polls += 1
            self._polled.notify_all()
            if self._is_over:
                raise Stopped
            return replace(self.view, time_s=self.view.time_s + self._polls)

    def show(self, view: SwarmView) -> None:
        """Serve another view, and return once the previous one is replaced."""
        with self._polled:
            self.view = view
            wanted = self._polls + 2
            assert self._polled.wait_for(lambda: self._polls >= wanted, timeout=LIMIT_S)

    def run(self) -> None:
        """Serve until the test is over."""
        try:
            serve(self.poll, self.view, self.listener, 0.2, frozenset({"node-a"}))
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """End the server at its next poll."""
        self._is_over = True

    def get(
        self, path: str = "/", host: str | None = None, method: str = "GET"
    ) -> tuple[http.client.HTTPResponse, str]:
        """Return a response and its content."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        link.putrequest(method, path, skip_host=True)
        if host != "":
            link.putheader("Host", host or f"127.0.0.1:{self.port}")
        link.endheaders()
        response = link.getresponse()
        text = response.read().decode()
        link.close()
        return response, text

    def json(self, path: str) -> Any:
        """Return the content of a JSON response."""
        return json.loads(self.get(path)[1])


@contextmanager
def served(view: SwarmView) -> Iterator[Site]:
    """Serve a page with this view for the duration of the block."""
    site = Site(view)
    thread = threading.Thread(target=site.run)
    thread.start()
    try:
        yield site
    finally:
        site.stop()
        thread.join(LIMIT_S)
        site.listener.close()
    assert not thread.is_alive()
    assert isinstance(site.error, Stopped), site.error
