"""What each attack achieves against live peers: as docs/reference/attacks.md says, and no more."""

from pathlib import Path

import pytest

from .attacks import ATTACKS
from .victims import Run

pytestmark = pytest.mark.live


@pytest.mark.parametrize("keys", [False, True], ids=["open", "member"])
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_achieves_what_the_table_says(name: str, keys: bool, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    with Run(tmp_path, keys=keys, rule=attack.rule) as run:
        assert attack.act(run) is (attack.member if keys else attack.open)
        assert [victim.error for victim in run.victims] == [None, None]
