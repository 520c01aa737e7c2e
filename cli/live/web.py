"""``rumor web``: a swarm that runs, as a page in the browser."""

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...gossip.errors import ConfigError
from ...gossip.specs.parameter import setting
from ..errors import sigterm_as_interrupt
from ..settings.options import Source, config_of, options_of
from .top import WATCHING, Members, TopConfig, observing

__all__ = ["WebConfig", "web"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """Where the page is to be had.

    Raises:
        ConfigError: A field is out of range.
    """

    listen: str = setting(
        "127.0.0.1:0",
        "Address and port of the page; port 0 is any free one. Whoever can connect there can "
        "watch.",
        metavar="HOST:PORT",
    )

    def __post_init__(self) -> None:
        _ = self.place

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        host, colon, port = self.listen.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(
                f"--listen is {self.listen!r}: write HOST:PORT, such as 127.0.0.1:8000"
            )
        return host, int(port)


@options_of(
    Source(TopConfig, WATCHING),
    Source(WebConfig, WATCHING),
)
def web(
    addresses: Members,
    **settings: Any,
) -> None:
    """Watch a swarm in the browser: who pushes to whom, curves, and what has happened.

    It watches as `rumor top` does, without being a member, and prints the address of the page.
    `GET /status.json` there is the last view, as `rumor top --json` prints it. Ctrl-C ends it; the
    page may be closed and opened at any time.

    On another machine, forward the port: `ssh -L 8000:127.0.0.1:8000 node-a`

    Exit status: 0 when it was ended; 1 if nobody answered, or the port is taken; 2 for wrong
    arguments.
    """
    config, place = config_of(TopConfig, settings), config_of(WebConfig, settings).place
    _require_starlette()
    with observing(addresses, config.key, config.roster) as observer, _listening(place) as listener:
        view = observer.poll()
        from .server import serve

        host, port = listener.getsockname()[:2]
        print(f"http://{f'[{host}]' if ':' in host else host}:{port}/", flush=True)
        names = frozenset({place[0].lower(), socket.gethostname().lower()})
        with suppress(KeyboardInterrupt), sigterm_as_interrupt():
            asyncio.run(serve(observer.poll, view, listener, config.every_s, names))


def _listening(place: tuple[str, int]) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise OSError(
            f"nothing can listen on {place[0]}:{place[1]}: {error.strerror or error}"
        ) from None


def _require_starlette() -> None:
    try:
        import starlette
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError("the page needs a web server: pip install 'rumor[web]'") from None
    del starlette
