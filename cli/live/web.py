"""A swarm that runs, as a page in the browser: ``rumor top --web``."""

import asyncio
import socket
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from ...gossip.errors import ConfigError
from ..errors import sigterm_as_interrupt

if TYPE_CHECKING:
    from ...train.observe.observer import Observer

__all__ = ["parse_place", "show_page"]


def parse_place(listen: str) -> tuple[str, int]:
    """Read ``HOST:PORT``.

    Raises:
        ConfigError: It is of another form.
    """
    host, colon, port = listen.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen is {listen!r}: write HOST:PORT, such as 127.0.0.1:8000")
    return host, int(port)


def show_page(
    observing: "AbstractContextManager[Observer]", place: tuple[str, int], every_s: float
) -> None:
    """Serve the page until Ctrl-C or SIGTERM, after its address was printed.

    Args:
        observing: Asks the swarm.
        place: Host and port of the page.
        every_s: From one poll to the next, seconds.

    Raises:
        ConfigError: The web server is not installed.
        OSError: The port is taken.
    """
    _require_starlette()
    with observing as observer, _listening(place) as listener:
        view = observer.poll()
        from .server import serve

        host, port = listener.getsockname()[:2]
        print(f"http://{f'[{host}]' if ':' in host else host}:{port}/", flush=True)
        names = frozenset({place[0].lower(), socket.gethostname().lower()})
        with suppress(KeyboardInterrupt), sigterm_as_interrupt():
            asyncio.run(serve(observer.poll, view, listener, every_s, names))


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
