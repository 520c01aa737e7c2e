"""The table of attacks in docs/reference/attacks.md, from what tests hold against live peers.

``python -m tests.hostile.page`` writes it anew.
"""

from pathlib import Path

from .attacks import ATTACKS, Attack, Verdict

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "attacks.md"

_HEAD = """# Attacks

What somebody achieves who speaks to a live peer with an encoder of its own. Every row is a test
(`tests/hostile/attacks.py`), run against two peers that train: by a stranger where there are no
keys, and with keys by a *member*: a machine of the [roster](../how-to/keys.md) that lies. A machine
that the roster lacks achieves nothing in any row, since not one of its messages is heard; that is a
test, too.

*before* was seen when nothing was bounded yet, and not measured again; where it is empty,
that was not tried. *nothing*: all goes on as if it had not happened. *bounded*: it has an effect,
and the last column says up to where. *works*: it does what it is meant to.

| attack | before | without keys | a member, with keys | what is left |
|---|---|---|---|---|
"""

_TAIL = """
*Written by `python -m tests.hostile.page`.
[What anybody can do](../explanation/protocol.md#what-anybody-can-do) says how each is bounded,
[security](../explanation/security.md) what keys keep out.*
"""


def page() -> str:
    """The page as it must be."""
    return _HEAD + "".join(map(_row, ATTACKS.values())) + _TAIL


def _row(attack: Attack) -> str:
    verdicts = (_told(attack.open), _told(attack.member))
    return f"| {attack.does} | {attack.before} | {' | '.join(verdicts)} | {attack.says} |\n"


def _told(verdict: Verdict) -> str:
    return f"**{verdict.value}**" if verdict is Verdict.WORKS else verdict.value


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
