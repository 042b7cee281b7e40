"""Groups of leases: granted as one or not at all, and released as one while they wait."""

from __future__ import annotations

import pytest

from leases.engine.lifecycle import release
from leases.engine.scheduling import request
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Share
from leases.validation.requests import read

LONG_AGO = "2020-01-01T00:00Z"


@pytest.mark.parametrize("different", ["", "resource"])
def test_a_group_is_built_and_granted_as_one(blueprint, owner, different):
    blueprint(config={"capacity": {"slots": 1}})
    _, ids = request.request_group([read({"type": "fake"})] * 3, owner.pk, actor="ada", different=different)
    settle()
    assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"active"}
    assert Resource.objects.count() == 3


def test_a_group_on_the_same_resource_shares_one(blueprint, owner):
    blueprint(config={"capacity": {"slots": 3}})
    _, ids = request.request_group([read({"type": "fake"})] * 3, owner.pk, actor="ada", same="resource")
    settle()
    assert len(set(Lease.objects.filter(pk__in=ids, state="active").values_list("resource", flat=True))) == 1


def test_a_group_holds_nothing_before_it_has_all(blueprint, owner, ask, until):
    blueprint(max_resources=2)
    first = until(ask(), state="active")
    _, ids = request.request_group([read({"type": "fake"})] * 2, owner.pk, actor="ada")
    settle()
    assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"pending"}
    assert Share.objects.count() == 1
    release.release(first.pk, actor="ada")
    settle()
    assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"active"}


def test_releasing_one_of_a_waiting_group_ends_the_group(blueprint, owner, ask, until):
    blueprint(max_resources=1)
    until(ask(), state="active")
    _, ids = request.request_group([read({"type": "fake"})] * 2, owner.pk, actor="ada")
    release.release(ids[0], actor="ada")
    settle()
    assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"destroyed"}
