"""Authorizations and quotas of users and groups: whom they refuse, park and let go on."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from drydock.core.errors import InvalidRequest
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Authorization, Quota
from leases.reasons import Reason

LONG_AGO = "2020-01-01T00:00Z"


def test_an_owner_without_authorization_is_refused_or_waits_for_it(blueprint, ask, owner, until):
    made = blueprint(audience="authorized")
    settle_refused = ask()
    settle()
    settle_refused.refresh_from_db()
    assert (
        "you are not authorized to use it; request that with: drydock authorizations ask pool" in settle_refused.message
    )
    mine = Authorization.objects.create(blueprint=made, user=owner)
    lease = ask()
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", Reason.WAITING_AUTHORIZATION)
    mine.state = "authorized"
    mine.save()
    until(lease, state="active")


def test_a_group_of_users_is_authorized_as_one(blueprint, ask, owner, until):
    made = blueprint(audience="authorized")
    team = Group.objects.create(name="team")
    Authorization.objects.create(blueprint=made, group=team, state="authorized")
    owner.groups.add(team)
    until(ask(), state="active")
    stranger = User.objects.create_user("eve")
    refused = ask(by=stranger)
    settle()
    refused.refresh_from_db()
    assert refused.state == "broken"


def test_a_quota_parks_its_owner_and_nobody_else(blueprint, ask, owner, until):
    blueprint(config={"capacity": {"slots": 10}}, max_resources=1)
    Quota.objects.create(user=owner, max_slots=2)
    first = until(ask(slots=2), state="active")
    mine = ask()
    settle()
    mine.refresh_from_db()
    assert (mine.state, mine.reason) == ("pending", Reason.WAITING_QUOTA)
    assert "ada's quota is 2 slots: 2 held, 1 more requested." in mine.message
    other = ask(by=User.objects.create_user("bob"))
    assert other.state == "active"
    release.release(first.pk, actor="ada")
    until(mine, state="active")


def test_a_groups_quota_counts_for_all_who_are_charged_to_it(blueprint, ask, owner, until):
    blueprint(config={"capacity": {"slots": 10}})
    team, bob = Group.objects.create(name="team"), User.objects.create_user("bob")
    owner.groups.add(team)
    bob.groups.add(team)
    Quota.objects.create(group=team, max_leases=1)
    until(ask(charged_group="team"), state="active")
    second = ask(by=bob, charged_group="team")
    settle()
    second.refresh_from_db()
    assert second.reason == Reason.WAITING_QUOTA
    with pytest.raises(InvalidRequest, match="not in group"):
        ask(charged_group="other")
