"""Results of single-message attacks against live peers, with and without keys."""

from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.wire import messages as m

from .attacks import ATTACKS
from .client import member
from .victims import Run, look

pytestmark = pytest.mark.live


@pytest.mark.extended
@pytest.mark.parametrize("keys", [False, True], ids=["open", "inside"])
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_its_documented_result(name: str, keys: bool, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    with Run(tmp_path, keys=keys, rule=attack.rule) as run:
        assert attack.act(run) is (attack.works_inside if keys else attack.works)
        assert [victim.error for victim in run.victims] == [None, None]


def test_messages_of_a_client_without_a_listed_key_are_ignored(tmp_path: Path) -> None:
    """This holds for any message, with the client's or a member's name."""
    with Run(tmp_path, keys=True) as run:
        errors, known = run.v.peer.stats().counters.errors, look(run.v, Protocol.known)
        outsider = run.stranger(has_key=False)
        outsider.socket.setsockopt(zmq.SNDTIMEO, 100)
        for name in ("m", "w", "x"):
            for kind, body in (
                (m.Hello, outsider.hello(member(name))),
                (m.Leave, [True]),
                (m.Query, [1]),
                (m.Ask, [False]),
            ):
                with suppress(zmq.Again):
                    outsider.send_message(kind, body, name=name)
        run.exchange(20)
        assert outsider.drain() == []
        assert run.v.peer.stats().counters.errors == errors
        assert (
            [each.id for each in look(run.v, Protocol.known)]
            == [each.id for each in known]
            == ["w"]
        )
