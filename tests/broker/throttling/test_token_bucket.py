"""A token bucket over simulated time: never more than its rate and one period, and never nothing for good."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.throttling.token_bucket import TokenBucket

START_MS = 1_800_000_000_000
RATES = st.integers(1, 10**12)
PERIODS = st.integers(1, 100_000)
STEPS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 1000)), max_size=50)


def test_a_bucket_begins_with_the_tokens_of_one_period_and_gains_them_evenly() -> None:
    bucket = TokenBucket(10, 1000, START_MS)
    assert bucket.available(START_MS) == 10
    bucket.take(10, START_MS)
    amounts = [bucket.available(START_MS + ms) for ms in (0, 99, 100, 101, 250, 999, 1000, 60_000)]
    assert amounts == [0, 0, 1, 1, 2, 9, 10, 10]


def test_a_debt_is_paid_off_by_time() -> None:
    bucket = TokenBucket(10, 1000, START_MS)
    bucket.take(35, START_MS)
    assert bucket.available(START_MS) == -25 and bucket.wait_ms(START_MS) == 2600
    assert bucket.wait_ms(START_MS + 2599) == 1 and bucket.wait_ms(START_MS + 2600) == 0
    assert bucket.available(START_MS + 2600) == 1


def test_a_clock_that_is_set_back_or_ahead_does_no_harm() -> None:
    bucket = TokenBucket(10, 1000, START_MS)
    bucket.take(20, START_MS)
    assert bucket.wait_ms(START_MS) == 1100
    back_ms = START_MS - 86_400_000
    assert bucket.wait_ms(back_ms) == 1100 and bucket.wait_ms(back_ms + 1100) == 0
    assert bucket.available(START_MS + 86_400_000) == 10


def test_another_rate_keeps_tokens_and_debt_up_to_one_period() -> None:
    bucket = TokenBucket(1000, 1000, START_MS)
    bucket.change(10, 1000, START_MS)
    assert bucket.available(START_MS) == 10  # not the thousand saved before
    bucket.take(500, START_MS)
    bucket.change(5, 1000, START_MS)
    assert bucket.available(START_MS) == -5  # a debt of seconds does not become one of minutes
    bucket.change(5, 1000, START_MS)
    assert bucket.available(START_MS + 1000) == 0


@given(RATES, PERIODS, STEPS)
def test_no_more_than_rate_and_burst_and_no_starving(rate: int, period_ms: int, steps: list[tuple[int, int]]) -> None:
    bucket, now_ms, taken = TokenBucket(rate, period_ms, START_MS), START_MS, 0
    for wait_ms, wanted in steps:
        now_ms += wait_ms
        count = min(wanted, max(bucket.available(now_ms), 0))
        bucket.take(count, now_ms)
        taken += count
        assert taken <= rate + rate * (now_ms - START_MS) // period_ms
    now_ms += bucket.wait_ms(now_ms)
    assert bucket.available(now_ms) >= 1


@given(RATES, PERIODS, STEPS)
def test_what_is_taken_on_credit_is_paid_exactly(rate: int, period_ms: int, steps: list[tuple[int, int]]) -> None:
    """A consumer that takes whenever it may, however much, gets its rate in the long run and not a token more."""
    bucket, now_ms, taken = TokenBucket(rate, period_ms, START_MS), START_MS, 0
    for _, wanted in steps:
        now_ms += bucket.wait_ms(now_ms)
        assert taken <= rate + rate * (now_ms - START_MS) // period_ms
        bucket.take(wanted, now_ms)
        taken += wanted
