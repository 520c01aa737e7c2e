"""Sizes of messages that name many peers, as the codec would write them."""

import pytest

from rumor.gossip.wire.codec import encoded_bytes
from rumor.gossip.wire.messages import Body, Envelope, Hello, Leave, Member, Phase
from rumor.sim.models.links import Sizes


def told(body: Body) -> Envelope:
    return Envelope(
        swarm=bytes(16),
        schema=bytes(16),
        source="peer-1",
        source_incarnation=2**41,
        destination="peer-2",
        destination_incarnation=3,
        body=body,
    )


def member(index: int) -> Member:
    return Member(
        id=f"peer-{index}",
        incarnation=1 + index % 3 * 2**40,
        heartbeat=index**2,
        phase=Phase.TRAINING,
        step=7 * index,
        addresses=(f"tcp://peer-{index}:7700",) * (index % 3),
    )


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 300])
def test_a_view_has_the_size_that_the_codec_gives_it(n: int) -> None:
    members = tuple(member(index) for index in range(n))
    hello = told(Hello(members=members, clock=(("a", 5),), rooted=True, reply=False))
    sizes = Sizes()
    # The second time, its entries are known.
    assert sizes.of(hello) == sizes.of(hello) == encoded_bytes(hello)


def test_entries_of_which_too_many_are_kept_are_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rumor.sim.models.links._KEPT_MAX", 50)
    sizes = Sizes()
    for start in range(0, 300, 20):
        members = tuple(member(index) for index in range(start, start + 20))
        hello = told(Hello(members=members, rooted=True, reply=False))
        assert sizes.of(hello) == encoded_bytes(hello)


def test_other_messages_are_left_to_the_codec() -> None:
    assert Sizes().of(told(Leave(True))) == encoded_bytes(told(Leave(True)))
