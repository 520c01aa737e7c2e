"""What somebody who speaks the protocol achieves against live peers, with keys and without."""

from pathlib import Path

import pytest

from rumor.gossip.protocol.protocol import Protocol

from .client import LEAVE
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
