"""What each attack achieves against live peers: as docs/reference/attacks.md says, and no more."""

from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from rumor.gossip import Protocol

from .attacks import ATTACKS
from .client import ASK, HELLO, LEAVE, QUERY, member
from .page import PAGE, page
from .victims import Run

pytestmark = pytest.mark.live


@pytest.mark.extended
@pytest.mark.parametrize("keys", [False, True], ids=["open", "member"])
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_achieves_what_the_table_says(name: str, keys: bool, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    with Run(tmp_path, keys=keys, rule=attack.rule) as run:
        assert attack.act(run) is (attack.member if keys else attack.open)
        ended = [victim.error is not None for victim in run.victims]
        assert ended == [attack.ends, False], [victim.error for victim in run.victims]


def test_whoever_has_no_key_of_the_roster_is_not_heard(tmp_path: Path) -> None:
    """Whatever it says, in its own or in a member's name."""
    with Run(tmp_path, keys=True) as run:
        errors, known = run.v.peer.counters.errors, run.v.look(Protocol.known)
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
        assert run.v.peer.counters.errors == errors
        assert [m.id for m in run.v.look(Protocol.known)] == [m.id for m in known] == ["w"]


def test_the_page_says_what_these_tests_hold() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
