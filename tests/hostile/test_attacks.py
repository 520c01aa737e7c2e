"""What somebody who speaks the protocol achieves against live peers, with keys and without."""

from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from rumor.gossip.protocol.protocol import Protocol

from .client import ASK, HELLO, LEAVE, QUERY, member
from .victims import Run

pytestmark = pytest.mark.live


@pytest.mark.extended
@pytest.mark.parametrize("keys", [False, True], ids=["open", "inside"])
def test_only_without_keys_a_goodbye_in_anothers_name_is_believed(
    keys: bool, tmp_path: Path
) -> None:
    with Run(tmp_path, keys=keys) as run:
        errors = run.v.peer.stats().counters.errors
        (other,) = run.v.look(Protocol.known)
        stranger = run.stranger()
        stranger.say(LEAVE, [True], name=other.id, incarnation=other.incarnation)
        run.heard(stranger)
        gone = run.v.look(lambda protocol: protocol.departed() == (other.id,))
        assert gone is not keys
        assert run.v.peer.stats().counters.errors == errors + keys
        assert [victim.error for victim in run.victims] == [None, None]


def test_whoever_has_no_key_of_the_roster_is_not_heard(tmp_path: Path) -> None:
    """Whatever it says, in its own or in a member's name."""
    with Run(tmp_path, keys=True) as run:
        errors, known = run.v.peer.stats().counters.errors, run.v.look(Protocol.known)
        outsider = run.stranger(has_key=False)
        outsider.socket.setsockopt(zmq.SNDTIMEO, 100)
        for name in ("m", "w", "x"):
            for kind, body in (
                (HELLO, outsider.hello(member(name))),
                (LEAVE, [True]),
                (QUERY, [1]),
                (ASK, [False]),
            ):
                with suppress(zmq.Again):
                    outsider.say(kind, body, name=name)
        run.exchange(20)
        assert outsider.drain() == []
        assert run.v.peer.stats().counters.errors == errors
        assert [m.id for m in run.v.look(Protocol.known)] == [m.id for m in known] == ["w"]
