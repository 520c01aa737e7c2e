"""What may be sent, and when: a rate on average, and turns in the order of waiting."""

import pytest

from rumor.gossip.exchange.flow_control import RateLimiter

A, B, C = (0, "a"), (1, "b"), (0, "c")


def test_without_a_rate_everything_may_go_out() -> None:
    rate_limiter = RateLimiter(None)
    rate_limiter.sent(10**12, 0.0)
    assert (
        rate_limiter.is_free(0.0)
        and rate_limiter.acquire(A)
        and rate_limiter.acquire(B)
        and rate_limiter.may_send(0.0)
    )
    assert rate_limiter.due_s == float("inf") and rate_limiter.front(0.0) is None


def test_a_rate_holds_on_average() -> None:
    rate_limiter, now, sent = RateLimiter(100.0), 5.0, 0
    while now < 105.0:
        if rate_limiter.is_free(now):
            rate_limiter.sent(70, now)
            sent += 70
        now += 0.01
    assert sent == pytest.approx(100.0 * 100.0, rel=0.02)


def test_what_was_not_sent_is_not_saved_up() -> None:
    rate_limiter = RateLimiter(100.0)
    rate_limiter.sent(50, 0.0)
    rate_limiter.sent(50, 1000.0)
    assert not rate_limiter.is_free(1000.4) and rate_limiter.is_free(1000.5)


def test_what_goes_out_together_takes_as_long_as_one_after_the_other() -> None:
    rate_limiter = RateLimiter(100.0)
    rate_limiter.sent(50, 0.0)
    rate_limiter.sent(50, 0.0)
    assert not rate_limiter.is_free(0.9) and rate_limiter.is_free(1.0)


def test_who_waited_first_goes_on_first_and_nothing_new_before() -> None:
    rate_limiter = RateLimiter(100.0)
    assert rate_limiter.acquire(A) and rate_limiter.may_send(0.0)
    rate_limiter.sent(100, 0.0)
    assert not rate_limiter.acquire(B) and not rate_limiter.acquire(C) and rate_limiter.acquire(A)
    assert not rate_limiter.may_send(0.5)
    assert rate_limiter.front(0.5) is None and rate_limiter.due_s == 1.0
    assert not rate_limiter.is_free(1.0)
    assert rate_limiter.front(1.0) == A and rate_limiter.may_send(1.0)
    rate_limiter.release(A)
    rate_limiter.release(A)
    assert rate_limiter.front(1.0) == B and not rate_limiter.acquire(C) and rate_limiter.acquire(B)
    rate_limiter.release(C)
    rate_limiter.release(B)
    assert rate_limiter.is_free(1.0) and rate_limiter.due_s == float("inf")


def test_one_that_waits_for_something_else_is_not_woken_for_bandwidth() -> None:
    rate_limiter = RateLimiter(100.0)
    assert rate_limiter.acquire(A)
    assert not rate_limiter.acquire(B)
    assert rate_limiter.due_s == float("inf") and rate_limiter.front(9.0) is None
    assert not rate_limiter.is_free(9.0)
