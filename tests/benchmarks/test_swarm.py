"""The swarm without a network: everybody knows everybody, and messages find their way."""

from rumor.benchmarks.protocol import Swarm

__all__: list[str] = []


def test_every_step_of_everybody_counts_and_pushes_add_to_it() -> None:
    silent, pushing = Swarm(4, p=0.0), Swarm(4, p=1.0)
    silent.steps(3)
    pushing.steps(3)
    assert silent.events == 12
    # A push is received, inspected and, after the receiver's turn, acknowledged.
    assert pushing.events > 3 * silent.events


def test_a_round_of_gossip_is_a_hello_and_its_answer_for_everybody() -> None:
    swarm = Swarm(5, p=0.0)
    swarm.gossip(1)
    assert swarm.events == 3 * 5
