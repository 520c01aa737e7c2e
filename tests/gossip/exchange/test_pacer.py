"""What may be sent, and when: a rate on average, and turns in the order of waiting."""

import pytest

from rumor.gossip.exchange.flow_control import RateLimiter

A, B, C = (0, "a"), (1, "b"), (0, "c")


def test_without_a_rate_everything_may_go_out() -> None:
    pacer = RateLimiter(None)
    pacer.sent(10**12, 0.0)
    assert pacer.is_free(0.0) and pacer.acquire(A) and pacer.acquire(B) and pacer.may_send(0.0)
    assert pacer.due_s == float("inf") and pacer.front(0.0) is None


def test_a_rate_holds_on_average() -> None:
    pacer, now, sent = RateLimiter(100.0), 5.0, 0
    while now < 105.0:
        if pacer.is_free(now):
            pacer.sent(70, now)
            sent += 70
        now += 0.01
    assert sent == pytest.approx(100.0 * 100.0, rel=0.02)


def test_what_was_not_sent_is_not_saved_up() -> None:
    pacer = RateLimiter(100.0)
    pacer.sent(50, 0.0)
    pacer.sent(50, 1000.0)
    assert not pacer.is_free(1000.4) and pacer.is_free(1000.5)


def test_what_goes_out_together_takes_as_long_as_one_after_the_other() -> None:
    pacer = RateLimiter(100.0)
    pacer.sent(50, 0.0)
    pacer.sent(50, 0.0)
    assert not pacer.is_free(0.9) and pacer.is_free(1.0)


def test_who_waited_first_goes_on_first_and_nothing_new_before() -> None:
    pacer = RateLimiter(100.0)
    assert pacer.acquire(A) and pacer.may_send(0.0)
    pacer.sent(100, 0.0)
    assert not pacer.acquire(B) and not pacer.acquire(C) and pacer.acquire(A)
    assert not pacer.may_send(0.5)
    assert pacer.front(0.5) is None and pacer.due_s == 1.0
    assert not pacer.is_free(1.0)
    assert pacer.front(1.0) == A and pacer.may_send(1.0)
    pacer.release(A)
    pacer.release(A)
    assert pacer.front(1.0) == B and not pacer.acquire(C) and pacer.acquire(B)
    pacer.release(C)
    pacer.release(B)
    assert pacer.is_free(1.0) and pacer.due_s == float("inf")


def test_one_that_waits_for_something_else_is_not_woken_for_bandwidth() -> None:
    pacer = RateLimiter(100.0)
    assert pacer.acquire(A)
    assert not pacer.acquire(B)
    assert pacer.due_s == float("inf") and pacer.front(9.0) is None
    assert not pacer.is_free(9.0)
