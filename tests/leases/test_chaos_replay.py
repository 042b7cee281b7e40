"""Found by chaos: who asks again under the same key, after a crash, gets the answer of the first time, however late."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import User

from drydock.core import clock
from drydock.core.errors import InvalidRequest
from leases.models import Lease, LeaseGroup
from leases.operations import callers, leases


@pytest.fixture
def who(owner: User) -> callers.Caller:
    return callers.caller(owner)


@pytest.fixture
def soon() -> dt.datetime:
    return clock.now() + dt.timedelta(seconds=0.5)


def test_a_replay_after_its_until_returns_the_ended_lease(blueprint, who, soon, until):
    blueprint()
    given = {"type": "fake", "until": soon, "idempotency_key": "once"}
    first = leases.request(who, given)
    until(Lease.objects.get(pk=first), state="destroyed")
    assert leases.request(who, given) == first


def test_a_replayed_group_after_its_until_returns_its_leases(blueprint, who, soon, until):
    blueprint()
    given = [{"type": "fake", "until": soon}, {"type": "fake", "until": soon}]
    first = leases.request_group(who, given, idempotency_key="once")
    for lease in first:
        until(Lease.objects.get(pk=lease), state="destroyed")
    assert leases.request_group(who, given, idempotency_key="once") == first


def test_a_new_request_for_a_time_in_the_past_is_refused_with_a_key_too(blueprint, who):
    blueprint()
    past = clock.now() - dt.timedelta(seconds=1)
    with pytest.raises(InvalidRequest, match="past") as refused:
        leases.request(who, {"type": "fake", "until": past, "idempotency_key": "new"})
    assert refused.value.field == "until"
    with pytest.raises(InvalidRequest, match="past"):
        leases.request_group(who, [{"type": "fake", "until": past}], idempotency_key="new")
    assert not Lease.objects.exists()
    assert not LeaseGroup.objects.exists()
