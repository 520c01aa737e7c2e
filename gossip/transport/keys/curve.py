"""CURVE on a peer's sockets: admission, the senders of messages, and refusals.

ZeroMQ asks about each key that connects, over an inner socket that must be bound before any other
(ZAP, RFC 27). Each message is checked against the roster again, since connections outlive a
revocation.
"""

import logging
from collections import Counter, OrderedDict
from typing import Any, Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from ...errors import ConfigError, TransportError
from ...types import PeerId
from .key import covers, key_bytes, key_text
from .keyring import Keyring

__all__ = ["ROSTER_MAGIC", "Curve", "HandshakeMonitor"]

_log = logging.getLogger("rumor")

ROSTER_MAGIC: Final = b"RMK\x01"
"""Prefix of a message that carries a roster, and of no other message."""

_ZAP: Final = "inproc://zeromq.zap.01"
_DOMAIN: Final = b"rumor"
_NAMES_MAX: Final = 256
_LINKS_MAX: Final = 16_384

_OUTCOMES: Final = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_NO_KEYS: Final = zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
_Socket = Any  # zmq.Socket[bytes], or the same of another context


class HandshakeMonitor:
    """Reports the outcomes of a dialing socket's handshakes, from ZeroMQ's monitor socket."""

    def __init__(self, socket: _Socket) -> None:
        self._watched = socket
        self.socket: _Socket = socket.get_monitor_socket(_OUTCOMES)

    def last(self) -> str | None:
        """Return why the last handshake failed (empty if it succeeded); None without a new one."""
        outcome = None
        while True:
            try:
                told = parse_monitor_message(self.socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return outcome
            succeeded = told["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            outcome = "" if succeeded else _why_failed(told["event"], told["value"])

    def close(self) -> None:
        self._watched.disable_monitor()
        self.socket.close(0)


def _why_failed(event: int, value: int) -> str:
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return "refuses this machine's key, which its roster does not list"
    if value == _NO_KEYS:
        return "has no keys: peers of one swarm all need --key and --roster"
    return "has no keys, or another key than the roster or the address says"


class Curve:
    """Keys on the sockets of one transport; belongs to its thread.

    Raises:
        ConfigError: ZeroMQ was built without CURVE.
        TransportError: The key handler cannot be set up, so no socket may be opened.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", keyring: Keyring) -> None:
        if not zmq.has("curve"):
            raise ConfigError("this pyzmq has no CURVE: install a wheel of pyzmq, which has it")
        self.keyring = keyring
        self.refused: Counter[str] = Counter()
        self._keys: dict[str, bytes] = {}
        self._spoken: dict[bytes, set[PeerId]] = {}
        self._told: OrderedDict[str | bytes, bytes] = OrderedDict()
        self.zap: _Socket = context.socket(zmq.REP)
        try:
            self.zap.bind(_ZAP)
        except zmq.ZMQError as error:
            raise TransportError(f"the keys of peers cannot be checked: {error}") from None

    def serve(self, socket: _Socket) -> None:
        """Make a socket that will be bound accept only members."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.keyring.own.secret)
        # Without a handler, CURVE would admit any key, unless the domain is enforced.
        socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def dial(self, socket: _Socket, key: str) -> None:
        """Make a socket that will connect accept only the machine with a key."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, key_bytes(key))
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.keyring.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.keyring.own.secret)

    def is_member(self, key: str) -> bool:
        """True if the machine with a key, as written in an address, is admitted now."""
        try:
            return key_bytes(key) in self.keyring.machines
        except ValueError:
            return False

    def answer(self) -> None:
        """Answer ZeroMQ's pending admission requests."""
        while True:
            try:
                request = self.zap.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            number = request[1] if len(request) > 1 else b""
            key = request[6] if len(request) == 7 and request[5] == b"CURVE" else b""
            user = key_text(key)
            if request[0] == b"1.0" and request[2] == _DOMAIN and key in self.keyring.machines:
                self._keys[user] = key
                reply = b"200", b"", user.encode()
            else:
                place = request[3].decode(errors="replace") if len(request) > 3 else "?"
                self.refuse(f"a connection from {place}: {self.keyring.why_refused(key)}")
                reply = b"400", b"not let in", b""
            self.zap.send_multipart([b"1.0", number, *reply, b""])

    def key_of(self, frame: zmq.Frame) -> bytes:
        """Return the key of the connection that a message arrived on; empty if unknown."""
        try:
            user = str(frame.get("User-Id"))
        except zmq.ZMQError:
            return b""
        return self._keys.get(user, b"")

    def admits(self, key: bytes) -> bool:
        """True if messages of the machine with a key are accepted now; counts refusals."""
        if key in self.keyring.machines:
            return True
        self.refuse(f"messages: {self.keyring.why_refused(key)}")
        return False

    def may_speak_as(self, key: bytes, name: PeerId) -> bool:
        """True if the machine with a key may send in the name of a peer; counts refusals."""
        known = self._spoken.setdefault(key, set())
        if name in known and key in self.keyring.machines:
            return True
        names = self.keyring.machines.get(key)
        if names is None or not covers(names, name):
            told = f"the key is for peers called {names or 'no name'}"
            self.refuse(f"messages in the name of {name}: {told}")
            return False
        if len(known) < _NAMES_MAX:
            known.add(name)
        return True

    def gone(self, lost: set[bytes]) -> set[PeerId]:
        """Return the names used only by machines that are no longer admitted."""
        names = {name for key in lost for name in self._spoken.pop(key, ())}
        return {
            name for name in names if not any(name in spoken for spoken in self._spoken.values())
        }

    def is_told(self, link: str | bytes) -> bool:
        return self._told.get(link) is self.keyring.text

    def note_told(self, link: str | bytes) -> None:
        self._told[link] = self.keyring.text
        self._told.move_to_end(link)
        if len(self._told) > _LINKS_MAX:
            self._told.popitem(last=False)

    @property
    def message(self) -> bytes:
        return ROSTER_MAGIC + self.keyring.text

    def take(self, message: bytes) -> bool:
        """Handle a member's message with a roster; True if that changed the roster."""
        try:
            return self.keyring.take(message[len(ROSTER_MAGIC) :])
        except ValueError as error:
            self.refuse(f"a roster: {error}")
            return False

    def refuse(self, why: str) -> None:
        # Unknown peers choose addresses and keys, so the number kept is bounded.
        if why in self.refused or len(self.refused) < _NAMES_MAX:
            self.refused[why] += 1
            if self.refused[why] == 1:
                _log.warning("refused %s", why)
