"""What an attack of one message achieves against live peers, without keys and with them."""

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
def test_an_attack_achieves_what_is_claimed(name: str, keys: bool, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    with Run(tmp_path, keys=keys, rule=attack.rule) as run:
        assert attack.act(run) is (attack.works_inside if keys else attack.works)
        assert [victim.error for victim in run.victims] == [None, None]


def test_whoever_has_no_key_of_the_roster_is_not_heard(tmp_path: Path) -> None:
    """Whatever it says, in its own or in a member's name."""
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
                    outsider.say(kind, body, name=name)
        run.exchange(20)
        assert outsider.drain() == []
        assert run.v.peer.stats().counters.errors == errors
        assert (
            [each.id for each in look(run.v, Protocol.known)]
            == [each.id for each in known]
            == ["w"]
        )
