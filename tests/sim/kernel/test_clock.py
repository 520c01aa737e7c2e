"""Events that are due at the same time happen in a fixed order."""

from rumor.sim.kernel.clock import ALARM, DELIVERY, FAULT, TURN, Clock


def test_events_due_at_one_time_happen_by_rank_and_then_in_order() -> None:
    clock = Clock()
    done: list[str] = []
    for name, priority in [
        ("turn", TURN),
        ("second delivery", DELIVERY),
        ("third delivery", DELIVERY),
        ("fault", FAULT),
    ]:
        clock.at(1.0, priority, done.append, name)
    assert not clock.run(0.5) and clock.now == 0.5 and not done
    assert clock.run(2.0, stop=lambda: len(done) == 3) and clock.now == 1.0
    clock.at(1.0, ALARM, done.append, "late")
    assert not clock.run(2.0) and clock.now == 2.0
    assert done == ["fault", "second delivery", "third delivery", "late", "turn"]
