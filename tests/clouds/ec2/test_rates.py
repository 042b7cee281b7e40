"""The limit of calls per second that clients of one account share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.rates import Rate, shared


class Time:
    """It passes by sleeping."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


def _rate(time: Time, per_second: float = 2.0, burst: float = 3.0) -> Rate:
    return Rate(per_second, burst, clock=time.clock, sleep=time.sleep)


def test_a_burst_and_then_the_rate(time: Time) -> None:
    rate = _rate(time)
    for _ in range(3):
        rate.take(0.0)
    assert time.slept == 0.0
    for _ in range(4):
        rate.take(10.0)
    assert time.slept == pytest.approx(2.0)


def test_it_refills_to_its_burst_only(time: Time) -> None:
    rate = _rate(time)
    time.now = 1000.0
    for _ in range(3):
        rate.take(0.0)
    with pytest.raises(CloudError):
        rate.take(0.0)


def test_too_long_a_wait_is_refused_and_takes_nothing(time: Time) -> None:
    rate = _rate(time, per_second=0.1, burst=1.0)
    rate.take(0.0)
    for _ in range(2):
        with pytest.raises(CloudError) as caught:
            rate.take(5.0)
        assert caught.value.meaning is Meaning.THROTTLED
        assert caught.value.after == pytest.approx(10.0)
    time.now += 10.0
    rate.take(0.0)


def test_what_the_provider_refuses_empties_it(time: Time) -> None:
    rate = _rate(time)
    rate.drain()
    rate.drain()
    rate.take(1.0)
    assert time.slept == pytest.approx(0.5)


def test_threads_share_it(time: Time) -> None:
    rate = Rate(1.0, 20.0, clock=time.clock, sleep=time.sleep)

    def took(_: int) -> bool:
        try:
            rate.take(0.0)
        except CloudError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(took, range(50))) == 20


def test_one_for_each_name() -> None:
    first = shared(("test", "us-east-1"), 1.0, 1.0)
    assert shared(("test", "us-east-1"), 1.0, 1.0) is first
    assert shared(("test", "eu-west-1"), 1.0, 1.0) is not first


@pytest.mark.parametrize(("per_second", "burst"), [(0.0, 1.0), (1.0, 0.5)])
def test_a_rate_that_never_lets_through_is_refused(per_second: float, burst: float) -> None:
    with pytest.raises(ValueError, match="per_second must be"):
        Rate(per_second, burst)
